"""Training and validation loss are both high and nearly flat.

What you see
------------
The curve bends early and then hardly falls; the training data are answered no better than the held-out ones.

Why it happens
--------------
A symptom: a rate that is too low or decays too early, a model or adapter that is too small, too much regularisation, a term of the
loss that cannot fall, or data that hold no more. The last is no fault.

How it is told apart
--------------------
A curve does not say what could be reached. With an accuracy at hand it is clear: the training accuracy itself is low, flat for the
later half of the run, and the validation lies beside it. Without one a flat end at more than two thirds of the start is a suspicion
only.

What to do
----------
`lossdoctor check` memorises a batch: if that fails the model or the loop is the limit, else rate and length are. Raise the rate three
times, then the model.

When this is wrong
------------------
At the noise of the labels, or at the entropy of a text, nothing more is to be had.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.curves import Shape, flat_tail, objective, shape
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.unseen import field_series

LEAST_VALUES = 12
# Starting values.
LOW, SMALL_GAP = 0.55, 0.06  # accuracy, and how far training may lie above validation
STILL, FLAT = 0.02, 0.5  # of the level, over this share of the curve
HIGH, FELL = 0.66, 0.015  # level over start; a smaller fall is `loss-flat`


def detect(training: Training) -> Detection | None:
    """Ask for a flat later half, and how high it lies."""
    loss = training.series("loss")
    found = shape(loss)
    if found is None or found.count < LEAST_VALUES or objective(training) != "plain" or training.fact("log_continues"):
        return None
    still = flat_tail(found, max(STILL * abs(found.level), 3 * found.error))
    if still < FLAT or found.level <= 0 or found.fall < FELL:
        return None
    accuracy = _accuracies(training)
    if accuracy is not None:
        return _by_accuracy(training, found, still, *accuracy)
    if found.level < HIGH * found.start or _gap(training, found):
        return None
    return Detection(0.45, (_evidence(found, still),))


def _accuracies(training: Training) -> tuple[float, float] | None:
    """Return training and validation accuracy at the end, as shares."""
    held_out = field_series(training.rows.get("validation", []), "correct").finite()
    own = training.signals.get("train_correct", Series.of([])).finite()
    if not len(held_out) or not len(own):
        return None
    return float(np.median(tail(own).values)), float(np.median(tail(held_out).values))


def _by_accuracy(training: Training, found: Shape, still: float, own: float, held_out: float) -> Detection | None:
    if own > LOW or own - held_out > SMALL_GAP:
        return None
    step = training.rows["validation"][-1].step
    seen = Evidence(
        "validation", (0, step), f"{held_out:.1%} correct, training {own:.1%}", "training clearly above", "both low, side by side"
    )
    return Detection(0.82, (_evidence(found, still), seen))


def _gap(training: Training, found: Shape) -> bool:
    """Tell whether the validation loss lies clearly above the training loss: then it is not the fit that lacks."""
    held_out = field_series(training.rows.get("validation", []), "loss").finite()
    return bool(len(held_out)) and float(np.median(tail(held_out).values)) > 1.1 * found.level


def _evidence(found: Shape, still: float) -> Evidence:
    first = found.ends[max(0, len(found.ends) - round(still * len(found.ends)) - 1)]
    seen = f"{found.level:.4g}, flat over the last {still:.0%} of the run; {found.fall:.0%} below the start"
    return Evidence("loss", (first, found.ends[-1]), seen, "a loss that falls on")


def _run(level: float, own: float | None = None, held_out: float = 0.0, start: float = 1.9, **facts: object) -> Training:
    values = [level + (start - level) * 0.5**i for i in range(40)]
    signals = {"loss": Series.of(values)} | ({"train_correct": Series.of([own] * 40)} if own is not None else {})
    rows = {"validation": [Row(i, {"loss": v, "correct": held_out}) for i, v in enumerate(values)]} if own is not None else {}
    return Training(signals=signals, rows=rows, facts=dict(facts))


FAULT = Fault(
    code="CUR006",
    slug="underfitting",
    title="Both losses high and nearly flat",
    detect=detect,
    needs=("loss",),
    fix="Memorise a batch first (lossdoctor check); then a higher rate, a longer run, a larger model.",
    severity="warning",
    examples=(
        Example("sick", _run(1.6, 0.35, 0.34), "a third correct, flat"),
        Example("sick", _run(1.2, 0.5, 0.49), "half correct, flat"),
        Example("healthy", _run(0.1, 0.97, 0.95), "learnt"),
        Example("healthy", _run(0.4), "a loss that fell to a fifth"),
        Example("look-alike", _run(1.6, 0.5, 0.3), "training above validation"),
        Example("look-alike", _run(1.6), "no accuracy: a suspicion only"),
        Example("look-alike", _run(1.6, 0.35, 0.34, log_words=["loss", "reward"]), "a policy's loss"),
        Example("known miss", _run(1.1, 0.6, 0.59), "sixty per cent correct where ninety were to be had"),
    ),
)
