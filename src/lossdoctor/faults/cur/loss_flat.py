"""The loss does not move.

What you see
------------
The curve is a level line; the accuracy stays at that of guessing.

Why it happens
--------------
A symptom. Weights that do not change (no step, wrong parameters, a rate near zero), a model that gives no gradient, labels that have
nothing to do with the inputs, data that failed to load, or a language model that has learnt word frequencies and nothing else.

How it is told apart
--------------------
Between its first and its last tenth the loss loses less than 1.5 % of itself. Near ln k with an accuracy near 1/k the answer is a
guess between k classes. A run that goes on from good weights is flat as well: an accuracy far above guessing, a start at the level where
an earlier run of the log ended, or a score that rises speak against this fault. Losses of rewards and of generative pairs are not
expected to fall.

What to do
----------
Watch the script (`lossdoctor run`): whether weights change, gradients flow and labels fit is seen within a minute, and not in a log.

When this is wrong
------------------
Weights that were trained already, on data that they know, have nothing left to learn.
"""

from __future__ import annotations

from math import log

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.curves import objective
from lossdoctor.derive.noise import noise_floor
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.trend import trend
from lossdoctor.derive.unseen import field_series

LEAST_VALUES = 8
ENOUGH = 12  # without a level that says chance; a handful of values only shows that the run was short
# Share of the loss between first and last tenth. Starting values: a language model stuck at word frequencies lost 1.4 % in 11,000
# steps, ten classes at chance 0.6 to 2.9 %, a slow but sound fine-tuning 6 % and more.
MOVED, MOVED_AT_CHANCE = 0.015, 0.035
# Of many values that scatter widely, a fall of this size may be noise; then their trend decides.
MANY, MOVED_WITHIN_NOISE, HIDDEN = 50, 0.05, 0.08
# And the first values must not stand far above the rest: a steep start is learning.
STEEP = 0.1
NEAR_CHANCE = 0.03  # of ln k
MOST_CLASSES = 20  # beyond, ln k and ln (k + 1) lie closer together than NEAR_CHANCE
BETTER = 2.0  # an accuracy of twice chance is not a guess


def detect(training: Training) -> Detection | None:
    """Compare the first tenth of the loss with the last."""
    loss = training.series("loss").finite()
    if len(loss) < LEAST_VALUES or objective(training) != "plain" or training.fact("log_continues"):
        return None
    early, level = float(np.mean(loss.values[: max(3, len(loss) // 10)])), float(np.median(tail(loss).values))
    if level <= 0 or early <= 0 or float(loss.values[:2].max()) - level > STEEP * level:
        return None
    moved = (early - level) / early
    classes = _classes(training, level)
    clear = len(loss) >= ENOUGH and noise_floor(loss) / level < MOVED * (len(loss) / 10) ** 0.5
    still = abs(moved) <= (MOVED_AT_CHANCE if classes else MOVED if clear else 0.0)
    if not (still or _no_trend(loss, moved)) or _learns(training, classes):
        return None
    span = (int(loss.steps[0]), int(loss.steps[-1]))
    note = f"near ln {classes} = {log(classes):.4g}: a guess between {classes} classes" if classes else _noise_note(loss)
    seen = Evidence("loss", span, f"{early:.4g} to {level:.4g} ({-moved:+.1%})", f"a fall of more than {MOVED:.1%}", note)
    return Detection(0.95 if classes else 0.85 if still else 0.8, (seen, *_score(training)))


def _no_trend(loss: Series, moved: float) -> bool:
    """Tell whether a small fall lies within the noise: no trend over many values, and none that the noise could hide."""
    if len(loss) < MANY or abs(moved) > MOVED_WITHIN_NOISE:
        return False
    found, span = trend(loss), float(loss.steps[-1] - loss.steps[0])
    return not found.falls and -found.low * span < HIDDEN * abs(loss.first)


def _noise_note(loss: Series) -> str:
    return f"over {len(loss)} values that scatter by {noise_floor(loss):.2g}"


def _classes(training: Training, level: float) -> int | None:
    """Return the number of classes that the level is a guess between; it must be told, or fit the accuracy."""
    told = training.fact("classes")
    if told and abs(level / log(float(told)) - 1) < NEAR_CHANCE:
        return int(told)
    accuracy = _accuracy(training)
    for classes in range(2, MOST_CLASSES + 1):
        if abs(level / log(classes) - 1) < NEAR_CHANCE and accuracy is not None and accuracy < 1.5 / classes:
            return classes
    return None


def _accuracy(training: Training) -> float | None:
    values = field_series(training.rows.get("validation", []), "correct").finite()
    return float(np.median(tail(values).values)) if len(values) else None


def _learns(training: Training, classes: int | None) -> bool:
    """Tell whether a score contradicts: it rose clearly, or is far above a guess."""
    values = field_series(training.rows.get("validation", []), "correct").finite()
    if not len(values):
        return False
    last = float(np.median(tail(values).values))
    return last > (BETTER / classes if classes else 0.5) or last - values.first > 0.1


def _score(training: Training) -> tuple[Evidence, ...]:
    accuracy = _accuracy(training)
    if accuracy is None:
        return ()
    last = training.rows["validation"][-1].step
    return (Evidence("validation", (0, last), f"{accuracy:.1%} correct", "rising", "the accuracy at the end"),)


def _run(values: list[float], correct: float | None = None, **facts: object) -> Training:
    rows = {"validation": [Row(i, {"loss": v, "correct": correct}) for i, v in enumerate(values)]} if correct is not None else {}
    return Training(signals={"loss": Series.of(values)}, rows=rows, facts=dict(facts))


_CHANCE = [2.31, 2.305, 2.309, 2.304, 2.306, 2.303, 2.305, 2.304, 2.303, 2.302]
_STUCK = [7.68, 7.72, 7.66, 7.70, 7.65, 7.67, 7.66, 7.64, 7.65, 7.66, 7.63, 7.65]

FAULT = Fault(
    code="CUR001",
    slug="loss-flat",
    title="The loss does not move",
    detect=detect,
    needs=("loss",),
    fix="Watch the script: lossdoctor run tells whether weights change, gradients flow and labels fit.",
    examples=(
        Example("sick", _run(_CHANCE, 0.1), "ten classes at chance"),
        Example("sick", _run(_STUCK), "a language model at word frequencies"),
        Example("sick", _run([0.694, 0.693] * 6, 0.5), "two classes at chance"),
        Example("sick", _run([2.2, 2.0, 2.3, 2.1, 1.98, 2.25, 2.1, 2.15] * 8), "noise without a trend"),
        Example("healthy", _run([2.3, 1.9, 1.5, 1.2, 1.0, 0.8, 0.7, 0.6, 0.55, 0.5]), "a loss that falls"),
        Example("healthy", _run([1.75, 1.68, 1.63, 1.58, 1.55, 1.52, 1.50, 1.48, 1.47, 1.46]), "a slow fine-tuning"),
        Example("look-alike", _run([0.31, 0.30, 0.31, 0.30, 0.31, 0.30, 0.31, 0.30, 0.31], 0.92), "good weights, trained on"),
        Example("look-alike", _run(_STUCK, log_words=["reward", "loss"]), "a policy's loss"),
        Example("look-alike", _run(_STUCK, log_continues=True), "goes on where an earlier run ended"),
        Example("look-alike", _run([2.4, 1.4, 3.1, 2.0, 2.9, 1.8, 2.6, 2.2, 3.0, 1.6] * 6), "noise that may hide a fall"),
        Example("look-alike", _run([43.2, 43.1, 43.0, 42.9, 42.8, 42.7, 42.7, 42.6, 42.6, 42.6]), "ten values, falling slowly"),
        Example("look-alike", _run([3.1, 1.07, *[0.66, 0.65] * 10]), "a steep start, then level"),
        Example("known miss", _run([2.6, *_CHANCE], 0.1), "a bad start that comes down to chance, and stays"),
    ),
)
