"""A part is frozen, or set free, by an attribute of the module: torch asks only the parameters, so nothing happens.

What you see
------------
What a pretrained part knew is lost while the new task is learnt; or a part that should learn again stays as it was.

Why it happens
--------------
`module.requires_grad = False` makes a new attribute of the module and touches none of its parameters. `module.requires_grad_(False)`,
with an underscore, is the method that does.

How it is told apart
--------------------
The attribute stands on the module with a value that its parameters do not share, and the weights that were meant to stay have moved (or
those that were meant to learn ask for no gradient). Parts that are frozen by their parameters say nothing of the kind. A class whose own
constructor sets an attribute of this name means something else by it.

What to do
----------
Call `module.requires_grad_(False)`, or set `requires_grad` of each of `module.parameters()`, before the optimiser is made.

When this is wrong
------------------
A module of a library that keeps a flag of this name, set after its constructor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Series, Training

SURE, UNSEEN_TO_MOVE = 0.95, 0.6  # the latter in the range of suspicion: weights were not followed


def detect(training: Training) -> Detection | None:
    """Hold what the modules say against what their parameters do."""
    flags = training.fact("frozen_modules")
    known = [each for each in flags if isinstance(each, Mapping)] if isinstance(flags, Sequence) else []
    found = [seen for each in known if (seen := _thawed(training, each) or _stuck(training, each)) is not None]
    return max(found, key=lambda seen: seen.strength, default=None)


def _thawed(training: Training, flag: Mapping[str, Any]) -> Detection | None:
    """See a part that was meant to be frozen and trains."""
    names = flag.get("parameters")
    if flag.get("value") is not False or not isinstance(names, Sequence) or not names:
        return None
    moved = training.signals.get("displacements", Series.of([]))
    columns = [place for place, name in enumerate(moved.names) if name in names]
    far = float(moved.values[-1][columns].max()) if len(moved) and columns else float("nan")
    if far == 0:
        return None
    got = f"moved by {far:.2g} of their size" if far > 0 else "ask for a gradient"
    seen = Evidence(
        "frozen_modules", _all(training), f"{', '.join(map(str, names))}: {got}", "still", f"{flag.get('module')}.requires_grad is False"
    )
    fix = "Call requires_grad_(False), with the underscore, on the module: the attribute alone freezes nothing."
    return Detection(SURE if far > 0 else UNSEEN_TO_MOVE, (seen,), fix)


def _stuck(training: Training, flag: Mapping[str, Any]) -> Detection | None:
    """See a part that was meant to train and asks for no gradient."""
    if flag.get("value") is not True or not flag.get("count"):
        return None
    got = f"{flag['count']} parameters ask for no gradient"
    seen = Evidence("frozen_modules", _all(training), got, "a gradient", f"{flag.get('module')}.requires_grad is True")
    return Detection(SURE, (seen,), "Call requires_grad_(True), with the underscore, on the module: the attribute alone sets nothing free.")


def _all(training: Training) -> tuple[int, int]:
    return 0, max(0, training.steps - 1)


def _run(flags: list[dict[str, Any]], moved: list[float] | None = None) -> Training:
    signals = {"loss": Series.of([2.0 - 0.01 * i for i in range(100)])}
    if moved is not None:
        signals["displacements"] = Series.of([[0.0, 0.0], moved], [0, 99], ["encoder.weight", "head.weight"])
    return Training(signals=signals, facts={"frozen_modules": flags})


def _flag(value: bool, *names: str) -> dict[str, Any]:
    return {"module": "Conv2d", "value": value, "parameters": list(names), "count": 1}


FAULT = Fault(
    code="LOP008",
    slug="freeze-wrong",
    title="Frozen parts move, or wanted parts are frozen",
    detect=detect,
    needs=("frozen_modules",),
    fix="Freeze with module.requires_grad_(False), or by each parameter's requires_grad, before the optimiser is made.",
    severity="error",
    examples=(
        Example("sick", _run([_flag(False, "encoder.weight")], [0.3, 0.5]), "an encoder that moves"),
        Example("sick", _run([_flag(True)], [0.0, 0.5]), "an encoder that was to be thawed"),
        Example("healthy", _run([], [0.3, 0.5]), "all is meant to move"),
        Example("healthy", _run([], [0.0, 0.5]), "a frozen encoder"),
        Example(
            "look-alike", _run([_flag(False, "encoder.weight")], [0.0, 0.5]), "the flag is wrong, and nothing moves for another reason"
        ),
        Example("look-alike", _run([_flag(False)], [0.0, 0.5]), "the optimiser does not hold what is flagged"),
        Example("known miss", _run([], [1e-3, 0.5]), "frozen weights that weight decay or old momentum moves"),
    ),
    plants=(
        Plant("middle", "optimiser", r"^(optimizer = .+)$", r"for part in list(model.modules())[1:]:\n    part.requires_grad = False\n\1"),
    ),
    bigger_machine=BiggerMachine("no", "what moves does not depend on the machine"),
)
