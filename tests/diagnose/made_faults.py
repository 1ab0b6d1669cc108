"""Made faults and trainings, so that the engine is tested without real ones."""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Fault
from lossdoctor.core.run import Series, Training


def training(steps: int = 20, phase_of: int | None = None, index: int = 0, names: tuple[str, ...] = ("w",), **facts: object) -> Training:
    """Build a training whose loss falls from 2 to 0.1, with facts that the made faults read."""
    parameters = [{"name": name, "key": i} for i, name in enumerate(names)]
    loss = Series.of([2.0 - 1.9 * step / max(1, steps - 1) for step in range(steps)])
    return Training(index=index, signals={"loss": loss}, facts={"parameters": parameters, **facts}, phase_of=phase_of)


def made(code: str, slug: str, **fields: object) -> Fault:
    """Build a fault that is as strong as the training's fact of its slug says, seen at the steps of the fact `<slug> at`."""

    def detect(training: Training) -> Detection | None:
        strength = training.fact(slug, 0.0)
        if strength == "missing":
            raise SignalMissing("validation")
        if strength == "broken":
            raise ZeroDivisionError("of our own")
        steps = training.fact(f"{slug} at", (1, 9))
        return Detection(strength, (Evidence("loss", steps, 2.0, 1.0),), severity=training.fact(f"{slug} severity")) if strength else None

    common = {"title": slug.capitalize(), "detect": detect, "needs": ("loss",), "fix": f"mend {slug}"}
    return Fault(code, slug, **{**common, **fields})  # type: ignore[arg-type]
