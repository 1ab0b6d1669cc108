"""The learning rate is so high that steps throw the weights about instead of improving them.

What you see
------------
The loss jumps above its start within the first steps, becomes NaN, swings, or falls and comes back; then it sits at what guessing
gives. Units that died or saturated in the jump stay so.

Why it happens
--------------
A step is right only near the point at which its gradient was taken. A rate that changes weights by a tenth and more of their size at
once leaves that neighbourhood: each step makes the loss worse, the next gradient is larger, and weights grow to many times their start.

How it is told apart
--------------------
Three things come together: a loss that is poor at the end; steps that are large against the weights, or weights many times their
start; and a loss that got worse than it was before the first step. A large step alone is no fault: before batch normalisation the
size of a weight does not matter, and such runs learn. A loss that is bad before the first step has another cause (inputs, start).
NaN without large steps comes from an operation or from half precision.

What to do
----------
Lower the rate so that the first step changes weights by about a hundredth; from there try three times more and less. Where only the
beginning is rough, warm up.

When this is wrong
------------------
Weights that start far too small are changed by a multiple of their size by any sensible step, and grow: such a run reads as suspected
here. Gradients that are never reset, or summed losses, make steps as large; those are named as the cause where they are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, log10, nan

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import Outcome, outcome
from lossdoctor.derive.rerun import rerun
from lossdoctor.derive.smooth import rolling_median
from lossdoctor.derive.strength import ramp, settled, slope
from lossdoctor.derive.update import displacements, update_sizes

# Loss over what guessing gives: below the first the run learns well whatever its steps, above the second it does poorly. Starting
# values; healthy runs with large steps end below .1, a healthy regression with much noise ends at .78 with small steps.
LEARNS, POOR = 0.1, 0.4
# Largest step / weight: healthy runs up to .07, failing ones from .06 up. Starting values; the ramps overlap, since either may decide.
STEP_SMALL, STEP_LARGE = 0.03, 0.3
# Weights' change since the start / their size then: healthy up to 3 (9 in a recurrent net), failing ones from 6 up. Starting values.
MOVED_LITTLE, MOVED_FAR = 2.0, 9.0
# Highest loss (median of three steps) over the loss before any step. Starting values.
WORSE, MUCH_WORSE = 1.1, 1.8
# Largest step over the first: momentum alone makes it ten times larger, but then it stays small. Starting values.
STEADY, RUNAWAY = 3.0, 12.0
# First loss over the level of a sound start: beyond it the start itself is bad (field guide: healthy up to 3.3, bad from 25).
BAD_START = 4.0
DOUBTFUL = 0.6  # the highest strength where something else may have done it; in the range of suspicion
# Share of the reference by which a rerun with a first step of .01 ends lower, and how much lower its rate must be. Starting values.
HEALED_LITTLE, HEALED, LOWER = 0.1, 0.3, 0.5
TARGET = 0.01  # update / weight that a step should have (field guide, section 2: 1e-3 usual, the rerun at 1e-2 healed every problem)


def detect(training: Training) -> Detection | None:
    """Weigh a poor loss, the size of steps, and whether the loss got worse than at its start."""
    if training.roles:
        return None
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    sizes = update_sizes(training)
    if seen is None or not len(sizes) or _upside_down(training):
        return None
    moved = displacements(training) if training.has("displacements") else Series.of([])
    far = ramp(_highest(moved), MOVED_LITTLE, MOVED_FAR)
    if seen.judged_by == "start" and not seen.not_finite:
        far = min(far, DOUBTFUL)  # the targets of a loss of its own may have grown, and weights grow in any long run
    push = max(ramp(_highest(sizes), STEP_SMALL, STEP_LARGE), far)
    start = max(seen.first, level.guess if level else 0.0)
    harm, onset = _harm(training.series("loss"), seen, start)
    harm = max(harm, _growing(sizes))
    strength = _poor(seen) * push * (0.5 + 0.5 * harm)
    if _excused(training, level.highest if level else inf, seen):
        strength = min(strength, DOUBTFUL)
    evidence = _evidence(seen, sizes, moved, start, onset)
    other = rerun(training, seen.reference)
    if other is not None:
        strength = settled(strength, slope(other.gain, HEALED_LITTLE, HEALED) if other.factor < LOWER else 0.0)
        evidence = (*evidence, other.evidence)
    return Detection(strength, evidence, _advice(training, sizes, onset), training.where("step"))


def _poor(seen: Outcome) -> float:
    if seen.not_finite or seen.lost:
        return 1.0
    return slope(seen.level, LEARNS, POOR) if seen.level is not None else 0.0


def _harm(loss: Series, seen: Outcome, start: float) -> tuple[float, int]:
    """Return how much worse the loss got than at its start, in [0, 1], and the step from which it was so."""
    smooth = rolling_median(loss, 3)  # a lone high value comes from a batch
    worse = ramp(float(smooth.values.max()) / start, WORSE, MUCH_WORSE) if start > 0 else 0.0
    above = smooth.steps[smooth.values > WORSE * start]
    onset = int(above[0]) if len(above) and worse else seen.best_step
    if seen.lost:
        worse = max(worse, 0.8)
    if seen.broken_from is not None:
        onset = min(onset, seen.broken_from) if worse else seen.broken_from
        worse = 1.0
    return worse, max(1, onset)


def _growing(sizes: Series) -> float:
    """Return how clearly steps grew from sensible to large: each made the next gradient larger."""
    if sizes.first <= 0 or _highest(sizes) < STEP_LARGE:
        return 0.0
    return ramp(_highest(sizes) / sizes.first, STEADY, RUNAWAY)


def _highest(series: Series) -> float:
    known = series.values[~np.isnan(series.values)]
    return float(known.max()) if len(known) else 0.0


def _upside_down(training: Training) -> bool:
    """Tell whether backward was called on the negative of the loss: then it rises as it was told to."""
    ratios = [row.get("ratio") for row in training.rows.get("loss_call", [])]
    known = [ratio for ratio in ratios if isinstance(ratio, int | float)]
    return bool(known) and float(np.median(known)) < 0


def _excused(training: Training, highest: float, seen: Outcome) -> bool:
    """Tell whether the start, the inputs or the precision may have done it."""
    half = any(each.get("dtype") == "float16" for each in training.fact("parameters") or [])
    shares = [each.get("finite") for row in training.rows.get("batch", []) for each in row.get("inputs") or []]
    broken_inputs = any(isinstance(share, int | float) and share < 1 for share in shares)
    return half or broken_inputs or seen.first > BAD_START * highest


def _evidence(seen: Outcome, sizes: Series, moved: Series, start: float, onset: int) -> tuple[Evidence, ...]:
    end = max(onset, int(sizes.steps[-1]), int(moved.steps[-1]) if len(moved) else 0)
    if seen.broken_from is not None:
        text = f"{start:.3g} at the start, not finite from step {seen.broken_from}"
    else:
        text = f"{start:.3g} at the start, up to {seen.peak:.3g}, {seen.last:.3g} at the end"
    reference = "below what guessing gives" if seen.judged_by == "guess" else "clearly below the start"
    expected = f"{reference} ({seen.reference:.3g})" if seen.reference is not None else "a finite loss"
    found = [Evidence("loss", (onset, max(onset, end)), text, expected)]
    largest = _highest(sizes)
    at = int(sizes.steps[int(np.nanargmax(sizes.values))])
    found.append(
        Evidence("update_ratios", (at, at), f"{largest:.2g} of the weights in a step", "about 0.001 to 0.01", "median over weights")
    )
    if len(moved):
        steps = (int(moved.steps[0]), int(moved.steps[-1]))
        found.append(Evidence("displacements", steps, f"{_highest(moved):.2g} times their size at the start", "0.1 to 3"))
    return tuple(found)


def _advice(training: Training, sizes: Series, onset: int) -> str:
    """Name the rate whose largest step before it went wrong changes weights by a hundredth."""
    rates = training.signals.get("lr", Series.of([])).finite()
    largest = _highest(sizes.between(0, onset + 1))
    if not len(rates) or rates.first <= 0 or not isfinite(largest) or largest <= TARGET:
        return ""
    better = float(f"{rates.first * TARGET / largest:.0e}")
    return f"Lower the learning rate from {rates.first:g} to about {better:g}: a step changed weights by {largest:.2g} of their size."


def _run(
    loss: Sequence[float],
    step: float,
    moved: float,
    guess: float = 2.3,
    lr: float = 0.1,
    rate: dict[str, float] | None = None,
    **facts: object,
) -> Training:
    """Build a training whose first step is the largest and whose weights end `moved` times their size away."""
    last = len(loss) - 1
    call = Row(0, {"kind": "cross_entropy", "guess_loss": guess, "zero_loss": guess, "ratio": facts.pop("ratio", 1.0)})
    signals = {
        "loss": Series.of(loss),
        "lr": Series.of([lr] * len(loss)),
        "update_ratios": Series.of([[step], [step / 5]], [0, last], ["w"]),
        "displacements": Series.of([[step], [moved]], [0, last], ["w"]),
    }
    experiments = {"rate": Experiment("rate", "done", 1.0, {"steps": 150, "factor": 0.02, **rate})} if rate else {}
    return Training(signals=signals, rows={"loss_call": [call]}, facts=dict(facts), experiments=experiments)


def _falling(end: float, start: float = 2.3, steps: int = 60) -> list[float]:
    return [start * 10 ** (log10(end / start) * i / (steps - 1)) for i in range(steps)]


_JUMP = [2.3, 9.0, 14.0, 6.0, *[2.31, 2.29] * 28]
_HALF = [{"shape": [4, 2], "dtype": "float16"}]

FAULT = Fault(
    code="OPT001",
    slug="lr-too-high",
    title="Learning rate too high",
    detect=detect,
    needs=("loss", "update_ratios"),
    fix="Lower the learning rate until the first step changes weights by about a hundredth of their size.",
    severity="error",
    explains=(
        "loss-not-finite",
        "dead-units",
        "saturated-units",
        "attention-logit-growth",
        "output-logit-drift",
        "loss-spike",
        "fp16-overflow",
        "warmup-missing",
        "loss-flat",
        "loss-diverged",
        "loss-noisy",
        "underfitting",
    ),
    examples=(
        Example("sick", _run(_JUMP, 0.84, 6.0), "jumps at once, then sits at guessing"),
        Example("sick", _run([2.3, 40.0, 9e3, 7e8, nan, nan, nan], 13.0, 4e5), "NaN after a few steps"),
        Example("sick", _run([*_falling(0.3, steps=20), 1.9, 2.6, 2.8, *[2.31] * 40], 0.065, 12.0), "learns, then is thrown back"),
        Example("sick", _run([1.0, 8e3, 9e3, 100.0, *[0.65, 0.6] * 30], 7.8, 33.0, guess=0.97), "a regression far above its reach"),
        Example("sick", _run([2.3] * 60, 0.9, 4.0, rate={"own_end": 2.3, "other_end": 0.7}), "sits at guessing; a lower rate heals it"),
        Example("healthy", _run(_falling(0.02), 0.03, 1.5, lr=1e-3), "a loss that falls"),
        Example("healthy", _run([2.3, 2.6, 2.4, *_falling(0.02)], 0.3, 4.9), "large first steps that lead down"),
        Example("look-alike", _run([2.4, *_falling(0.003)], 1.4, 0.6), "large steps before batch normalisation"),
        Example("look-alike", _run([5.3, 4.9, 4.7, *[4.0] * 60], 0.02, 1.2, guess=5.1), "a regression whose noise leaves most of it"),
        Example("look-alike", _run([0.07, *[5e-5] * 30, *[nan] * 30], 0.03, 0.8, guess=0.2), "NaN from an operation, steps are small"),
        Example("look-alike", _run([2.3, nan, nan, nan, nan], inf, inf, parameters=_HALF), "half precision divides by zero"),
        Example("look-alike", _run([400.0, 900.0, 300.0, *[5.0] * 40], 2.0, 8.0), "a loss that is bad before the first step"),
        Example("look-alike", _run([2.3, 9.0, 80.0, *[900.0] * 40], 0.1, 30.0, ratio=-1.0), "the loss is negated and rises as told"),
        Example("look-alike", _run([1.0, *[9.0, 12.0] * 30], 0.03, 12.0, guess=nan), "returns grow, and the loss on them"),
        Example("look-alike", _run([2.3] * 60, 0.9, 4.0), "weights that start too small grow, nothing gets worse"),
        Example("look-alike", _run([2.3] * 60, 0.9, 4.0, rate={"own_end": 2.3, "other_end": 2.2}), "a lower rate does not help"),
        Example("known miss", _run([*_falling(0.8, steps=20), *[0.8, 1.3, 0.9] * 15], 0.08, 2.5), "three times too high: half learnt"),
    ),
    plants=(
        Plant("mild", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 * 15"),
        Plant("middle", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 * 300"),
        Plant("severe", "optimiser", r"^RATE = (\S+)$", r"RATE = \1 * 3000"),
    ),
    treatment=Treatment("set_update_ratio", {"update_ratio": TARGET}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "a lower rate costs nothing"),
    decides_with=("rate",),
)
