"""The training loss came down and then ran away.

What you see
------------
After its best the training loss climbs and stays high; often lower rates afterwards do not bring it back.

Why it happens
--------------
A rate that is too high, or becomes so; gradients that pile up; a batch that threw the weights out of their valley. A schedule that
cuts the rate at bad scores then freezes the run where it is.

How it is told apart
--------------------
The last tenth lies above the best stretch by a fifth of all that was gained, and far above the noise. A spike that comes back is
`loss-spike`; a validation loss that rises while the training loss falls is `overfitting`; a rate that was raised on purpose (warm
restarts) lifts the loss less and only for a while.

What to do
----------
Go back to the checkpoint before the rise and lower the rate, warm up, or clip. Look whether the gradient norm rose first.

When this is wrong
------------------
Harder data, another mixture or a new term of the loss in the middle of the run lift the loss as well.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.curves import Shape, objective, shape

LEAST_VALUES = 6
# Starting values. A run that froze at half of what it had gained lost a third of it; sound runs lose under 3 %.
LOST, RISE, DEVIATIONS = 0.2, 0.08, 6.0
RUNAWAY = 1.5  # times the start


def detect(training: Training) -> Detection | None:
    """Compare the end of the loss with its best stretch and with its start."""
    loss = training.series("loss")
    found = shape(loss)
    if found is None or found.count < LEAST_VALUES or objective(training) != "plain" or training.fact("log_curve", "loss") != "loss":
        return None
    strength = _strength(found)
    if not strength:
        return None
    best = int(np.argmin(found.means))
    steps = (found.ends[best], found.ends[-1])
    seen = f"{found.best:.4g} at best, {found.level:.4g} at the end"
    return Detection(strength, (Evidence("loss", steps, seen, "an end near the best", _note(training, found, steps[0])),))


def _strength(found: Shape) -> float:
    # the median and the mean of the end: one of them alone may be a spike
    last = min(found.level, float(found.means[-1]))
    gained, lost = found.start - found.best, last - found.best
    if last > RUNAWAY * found.start > 0 and lost > DEVIATIONS * found.error:
        return 0.95
    clear = lost > DEVIATIONS * found.error and lost > RISE * abs(found.best) and lost > LOST * gained > 0
    return 0.9 if clear and int(np.argmin(found.means)) < 0.9 * len(found.means) else 0.0


def _note(training: Training, found: Shape, begins: int) -> str:
    rates = training.signals.get("lr", Series.of([])).finite()
    after = rates.between(begins, found.ends[-1] + 1)
    if len(after) and after.last < 0.5 * after.first:
        return "the rate was lowered after the rise: an effect of it, not its cause"
    return f"{found.level - found.best:.3g} lost of the {found.start - found.best:.3g} gained"


def _run(values: list[float], **facts: object) -> Training:
    return Training(signals={"loss": Series.of(values)}, facts=dict(facts))


_LATE = [9.1, 7.4, 6.3, 5.8, 5.5, 5.3, 5.2, 5.2, 5.9, 6.6, 6.8, 6.5, 6.4, 6.4, 6.4, 6.4]

FAULT = Fault(
    code="CUR002",
    slug="loss-diverged",
    title="The loss runs away",
    detect=detect,
    needs=("loss",),
    fix="Go back to the checkpoint before the rise; lower the rate, warm up or clip.",
    explains=("loss-noisy", "loss-spike"),
    examples=(
        Example("sick", _run(_LATE), "blows up half way and freezes"),
        Example("sick", _run([2.3, 2.5, 4.0, 9.0, 40.0, 200.0, 900.0, 4000.0]), "runs away from the start"),
        Example("sick", _run([2.3, 1.5, 1.0, 0.8, 0.7, 1.9, 2.2, 2.3, 2.3, 2.3]), "falls back to guessing"),
        Example("healthy", _run([2.3, 1.5, 1.1, 0.9, 0.8, 0.7, 0.65, 0.6, 0.58, 0.57]), "a loss that falls"),
        Example("healthy", _run([2.3, 1.0, 0.6, 0.5, 0.52, 0.49, 0.51, 0.5, 0.52, 0.5, 0.51]), "level at the end"),
        Example("look-alike", _run([2.3, 1.0, 0.6, 0.5, 0.5, 9.0, 0.6, 0.5, 0.5, 0.5, 0.49, 0.5]), "a spike that comes back"),
        Example("look-alike", _run([2.3, 1.6, 1.2, 1.0, 1.2, 1.1, 0.95, 0.9, 1.05, 0.95, 0.85, 0.8]), "warm restarts of the rate"),
        Example("look-alike", _run(_LATE, log_curve="validation_loss"), "only the validation loss is logged"),
        Example("look-alike", _run(_LATE, log_words=["loss", "generator", "discriminator"]), "a generative pair"),
        Example("known miss", _run([2.3, 1.5, 1.0, 0.8, 0.7, 0.7, 0.78, 0.83, 0.84, 0.85]), "a small rise"),
    ),
)
