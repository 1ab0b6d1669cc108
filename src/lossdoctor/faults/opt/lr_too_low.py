"""The learning rate is so low that the weights hardly leave their start.

What you see
------------
A smooth, almost flat loss that falls a little all the time; the score stays near that of guessing.

Why it happens
--------------
Each step changes the weights by a millionth of their size. It goes the right way, but the run ends before it got anywhere.

How it is told apart
--------------------
The loss ends close to where guessing, or its own start, is; every weight with a gradient moves by far less than a thousandth of its
size at every step of the run, also at the highest rate of its schedule; and the weights end within a few hundredths of their start.
Layers that differ widely point to vanishing gradients, exactly zero gradients to dead units, no change at all to a missing step. A run
that continues from a checkpoint, or fine-tunes, starts with a loss that is low already.

What to do
----------
Raise the rate until a step changes weights by about a thousandth to a hundredth of their size: three times at a time, or by the range
test of `lossdoctor tune`.

When this is wrong
------------------
A run that was stopped within its warm-up looks the same; it is held for suspected. Gradients that are clipped to almost nothing have the
same effect, and a higher rate cures that too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import Outcome, outcome
from lossdoctor.derive.rerun import rerun
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.strength import ramp, settled, slope
from lossdoctor.derive.trend import trend
from lossdoctor.derive.update import displacements, update_sizes, update_spread

# Loss at the end over what guessing (or the start) gives. Starting values: a rate a hundred times too low ends at .97 and above.
LEARNT, UNTOUCHED = 0.6, 0.9
# Update / weight of the larger steps. Starting values: healthy runs have .001 to .05 (odd ones 2e-4), rates 300 times too low 1e-5 to
# 3e-4. Between the last two the loss must be seen to fall all the while; below the last, noise may hide that it does.
STEP_USUAL, STEP_SMALL, STEP_TINY = 1e-3, 3e-4, 3e-5
# Change since the start / size at the start. Starting values: healthy .1 to 3 (field guide), rates 300 times too low .001 to .07.
MOVED, UNMOVED = 0.2, 0.05
# A loss above this share of guessing that the last third of the run lowered by that share of itself has far to go (starting values).
ON_THE_WAY, GAIN = 0.25, 0.05
# One weight moving by more than this, and so many times more than another, is no matter of the rate.
STEP_LARGE, FACTOR = 1e-3, 100.0
DEPTH = 1e3  # largest over smallest gradient of the weights (field guide, row 30: first / last below 1e-3 vanishes)
CLIPPED = 10.0  # gradient norm over its limit (field guide, row 53)
RISING = 0.5  # a rate whose first half lies below this share of its last value is still warming up
# Share of the reference by which a rerun with a first step of .01 ends lower, and how much higher its rate must be. Starting values.
FARTHER_LITTLE, FARTHER, HIGHER = 0.1, 0.3, 4.0
DOUBTFUL = 0.6  # highest strength where something else may have done it; in the range of suspicion
TARGET = 0.005


def detect(training: Training) -> Detection | None:
    """Weigh a loss near its start, tiny steps in all weights, and weights near their start."""
    if training.roles:
        return None
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    sizes = update_sizes(training)
    if seen is None or seen.not_finite or seen.level is None or not len(sizes) or _uneven(training):
        return None
    if training.phase_of is not None and seen.judged_by == "start":
        return None  # goes on from what an earlier phase learnt
    size = float(np.quantile(sizes.values, 0.75))
    moved = displacements(training) if training.has("displacements") else Series.of([])
    if size <= 0 and _rate(training) > 0:
        return None  # a gradient, a rate and no change: the step is missing
    still = ramp(moved.last, MOVED, UNMOVED) if len(moved) else 0.5
    strength = max(_unfinished(training, seen, size), _untouched(seen, size, moved)) * _small(training, size) * (0.5 + 0.5 * still)
    if _excused(training) or (seen.judged_by == "start" and not _on_its_way(training, seen, size)):
        strength = min(strength, DOUBTFUL)
    evidence = _evidence(training, seen, size, moved)
    other = rerun(training, seen.reference)
    if other is not None:
        strength = settled(strength, slope(other.gain, FARTHER_LITTLE, FARTHER) if other.factor > HIGHER else 0.0)
        evidence = (*evidence, other.evidence)
    return Detection(strength, evidence, _advice(training, size), training.where("step"))


def _unfinished(training: Training, seen: Outcome, size: float) -> float:
    """Return how clearly nothing much was learnt; a run that is on its way and could have been there is at most suspected."""
    level = seen.level or 0.0
    poor = slope(level, LEARNT, UNTOUCHED)
    if level < ON_THE_WAY or size > STEP_SMALL:
        return poor
    end = tail(training.series("loss"), 1 / 3)
    found = trend(end)
    gain = -found.slope * (int(end.steps[-1]) - int(end.steps[0])) if found.falls else 0.0
    return max(poor, DOUBTFUL if gain > GAIN * seen.last else 0.0)


def _untouched(seen: Outcome, size: float, moved: Series) -> float:
    """Return how clearly a start that happened to lie below guessing is still what the loss shows: the weights never left it."""
    if size > STEP_TINY or not len(moved) or moved.last > UNMOVED or seen.early <= 0 or (seen.level or 0.0) < LEARNT:
        return 0.0
    return slope(seen.last / seen.early, LEARNT, UNTOUCHED)


def _on_its_way(training: Training, seen: Outcome, size: float) -> bool:
    """Tell whether a loss whose guess is not known fell all the while by tiny steps: a run that is done would not."""
    return size < STEP_TINY and (seen.fell or 0.0) > GAIN and trend(tail(training.series("loss"), 1 / 3)).falls


def _small(training: Training, size: float) -> float:
    """Return how clearly steps are too small, in [0, 1]."""
    falls = 0.95 if trend(training.series("loss")).falls else 0.5
    return max(ramp(size, STEP_SMALL, STEP_TINY), falls * ramp(size, STEP_USUAL, STEP_SMALL))


def _uneven(training: Training) -> bool:
    """Tell whether some weights move well and others do not: then depth or freezing is the matter, not the rate."""
    spread = update_spread(training)
    return spread is None or (spread.largest > STEP_LARGE and spread.factor > FACTOR)


def _rate(training: Training) -> float:
    rates = training.signals.get("lr", Series.of([1.0])).finite()
    return float(rates.values.max()) if len(rates) else 1.0


def _excused(training: Training) -> bool:
    """Tell whether depth, clipping, precision or an unfinished warm-up may have done it."""
    return _vanishing(training) or _clipped(training) or _coarse(training) or _warming(training)


def _vanishing(training: Training) -> bool:
    norms = training.signals.get("grad_norms")
    described = training.fact("parameters") or []
    if norms is None or len(described) != norms.values.shape[1]:
        return False
    weights = np.array([len(each.get("shape") or ()) >= 2 for each in described])
    first = norms.values[0][weights]
    known = first[np.isfinite(first) & (first > 0)]
    return len(known) > 1 and bool(known.max() / known.min() > DEPTH)


def _clipped(training: Training) -> bool:
    norms, limits = (training.signals.get(name, Series.of([])) for name in ("clip_norm", "clip_limit"))
    if not len(norms) or len(norms) != len(limits):
        return False
    ratios = norms.values / limits.values
    return bool(np.isfinite(ratios).any() and np.nanmedian(ratios) > CLIPPED)


def _coarse(training: Training) -> bool:
    return any(each.get("dtype") in ("float16", "bfloat16") for each in training.fact("parameters") or [])


def _warming(training: Training) -> bool:
    rates = training.signals.get("lr", Series.of([])).finite()
    if len(rates) < 2:
        return False
    middle = float(rates.values[len(rates) // 2])
    return rates.last >= float(rates.values.max()) and middle <= (RISING + 0.1) * rates.last and rates.first < RISING * rates.last


def _evidence(training: Training, seen: Outcome, size: float, moved: Series) -> tuple[Evidence, ...]:
    steps = training.series("update_ratios").steps
    span = (int(steps[0]), int(steps[-1]))
    end = max(span[1], training.steps - 1)
    below = "what guessing gives" if seen.judged_by == "guess" else "the start"
    first = max(seen.first, seen.early)
    found = [
        Evidence("loss", (0, end), f"{first:.4g} at first, {seen.last:.4g} at last", f"clearly below {below} ({seen.reference:.4g})"),
        Evidence("update_ratios", span, f"{size:.1e} of the weights in a step", "about 0.001 to 0.01", "of the larger steps"),
    ]
    if len(moved):
        found.append(Evidence("displacements", span, f"{moved.last:.2g} of their size at the start", "0.1 to 3"))
    return tuple(found)


def _advice(training: Training, size: float) -> str:
    rate = _rate(training)
    if not training.has("lr") or rate <= 0 or size <= 0:
        return ""
    better = float(f"{rate * TARGET / size:.0e}")
    return f"Raise the learning rate from {rate:g}; about {better:g} would change weights by {TARGET:g} of their size in a step."


def _run(end: float, step: float, moved: float, start: float = 2.3, **more: object) -> Training:
    """Build a training of a hundred steps whose loss goes straight from its start to its end."""
    loss = [start + (end - start) * i / 99 for i in range(100)]
    guess = more.pop("guess", 2.3)
    call = Row(0, {"kind": "cross_entropy", "guess_loss": guess, "zero_loss": guess})
    rates = more.pop("lr", [1e-6] * 100)
    layers = more.pop("layers", [1.0, 1.0])
    signals = {
        "loss": Series.of(loss),
        "lr": Series.of(rates if isinstance(rates, Sequence) else [rates] * 100),
        "update_ratios": Series.of([[step * each for each in _floats(layers)]] * 2, [0, 99], ["a", "b"]),
        "grad_norms": Series.of([_floats(more.pop("gradients", [0.1, 0.2]))] * 2, [0, 99], ["a", "b"]),
        "displacements": Series.of([[step, step], [moved, moved]], [0, 99], ["a", "b"]),
    }
    for name in ("clip_norm", "clip_limit"):
        if name in more:
            signals[name] = Series.of([more.pop(name)] * 100)
    facts = {"parameters": [{"shape": [4, 4], "dtype": more.pop("dtype", "float32")}] * 2}
    rows = {"loss_call": [call]} if guess else {}
    phase = 0 if more.pop("phase", False) else None
    rate = {"steps": 150, "factor": 500.0, "own_end": 2.29, "other_end": more.pop("other_end", None)}
    experiments = {"rate": Experiment("rate", "done", 1.0, rate)} if rate["other_end"] else {}
    return Training(signals=signals, rows=rows, facts=facts, phase_of=phase, experiments=experiments)


def _floats(values: object) -> list[float]:
    return [float(value) for value in values] if isinstance(values, Sequence) else []


FAULT = Fault(
    code="OPT002",
    slug="lr-too-low",
    title="Learning rate too low",
    detect=detect,
    needs=("loss", "update_ratios"),
    fix="Raise the learning rate until a step changes weights by about a thousandth to a hundredth of their size.",
    severity="error",
    explains=("loss-flat", "underfitting", "too-few-epochs"),
    examples=(
        Example("sick", _run(2.28, 6e-7, 8e-4), "thousands of times too low"),
        Example("sick", _run(2.25, 3e-5, 7e-3), "a hundred times too low"),
        Example("sick", _run(4.5, 2e-6, 1e-3, start=4.6, guess=4.6), "a language model that hardly moves"),
        Example("sick", _run(2.2, 1e-5, 5e-3, guess=0.0, other_end=0.8), "a loss of its own; a higher rate gets further"),
        Example("sick", _run(2.1, 4e-6, 5e-3, guess=0.0), "a loss of its own that falls all the while"),
        Example("sick", _run(1.75, 1e-5, 5e-3, start=1.85), "a start that lies below guessing, and stays"),
        Example("healthy", _run(0.1, 2e-3, 1.2), "a loss that falls"),
        Example("healthy", _run(0.05, 1e-5, 0.01, start=0.06), "goes on from a low loss with small steps"),
        Example("healthy", _run(1.5, 3e-4, 0.2), "slow, and on its way"),
        Example("look-alike", _run(2.29, 1e-2, 1.0), "stays at guessing with ordinary steps"),
        Example("look-alike", _run(2.29, 2e-5, 5e-3, layers=[1.0, 500.0]), "only the last layer moves"),
        Example("look-alike", _run(2.29, 2e-5, 5e-3, gradients=[1e-7, 0.2]), "gradients vanish along depth"),
        Example("look-alike", _run(2.29, 2e-5, 5e-3, clip_norm=50.0, clip_limit=0.01), "clipped to almost nothing"),
        Example("look-alike", _run(2.29, 2e-5, 5e-3, lr=[1e-8 * i for i in range(100)]), "stopped within its warm-up"),
        Example("look-alike", _run(2.29, 2e-5, 5e-3, dtype="bfloat16"), "updates too small for the weights' format"),
        Example("look-alike", _run(2.3, 0.0, 0.0), "nothing moves at all"),
        Example("look-alike", _run(2.2, 1e-5, 5e-3, guess=0.0, other_end=2.25), "a higher rate gets no further"),
        Example("look-alike", _run(0.99, 1e-5, 4e-3, start=1.0, guess=0.0, phase=True), "a second phase with a loss of its own"),
        Example("known miss", _run(1.3, 2e-4, 0.05), "thirty times too low: falls, too slowly"),
    ),
    plants=(
        Plant("mild", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 / 150"),
        Plant("middle", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 / 3000"),
        Plant("severe", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 / 30000"),
    ),
    treatment=Treatment("set_update_ratio", {"update_ratio": TARGET}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "a higher rate costs nothing; a faster machine would only creep faster"),
    decides_with=("rate",),
)
