"""The run stopped while it still improved.

What you see
------------
The loss falls to the last line, and so does the validation.

Why it happens
--------------
The number of epochs was fixed before the run, or the schedule was cut short.

How it is told apart
--------------------
Over the last quarter the loss falls at a rate that, halved (curves bend), would gain five per cent more in another quarter of the run,
beyond its noise; and the validation, where there is one, has its best in the last sixth. A schedule that has come to its end flattens the
curve by itself.

What to do
----------
Run longer, with the schedule stretched accordingly, until the validation stops improving.

When this is wrong
------------------
A run that is still under way, or was stopped for its cost, is no failure.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.curves import Shape, objective, shape
from lossdoctor.derive.unseen import field_series

LEAST_VALUES = 16
# Field guide: best step in the last quarter and a gain of 5 % by extrapolation; halved because curves bend.
GAIN, BENDS = 0.05, 0.5
LATE = 0.84


def detect(training: Training) -> Detection | None:
    """Extrapolate the last quarter of the loss by another quarter."""
    loss = training.series("loss")
    found = shape(loss)
    if found is None or found.count < LEAST_VALUES or objective(training) != "plain" or found.level <= 0:
        return None
    quarter = max(2, len(found.means) // 4)
    fell = float(np.mean(found.means[-quarter:][: max(1, quarter // 3)]) - np.mean(found.means[-max(1, quarter // 3) :]))
    gain = BENDS * fell / found.level
    if gain < GAIN or fell < 4 * found.error or not _still_best(training, found):
        return None
    steps = (found.ends[-quarter], found.ends[-1])
    seen = Evidence("loss", steps, f"falls by {fell / found.level:.0%} over the last quarter", f"less than {GAIN / BENDS:.0%}")
    return Detection(0.8 + min(0.15, gain - GAIN), (seen,))


def _still_best(training: Training, found: Shape) -> bool:
    held_out = field_series(training.rows.get("validation", []), "loss").finite()
    if len(held_out) < 3:
        return not training.rows.get("validation")
    best = int(held_out.steps[int(np.argmin(held_out.values))])
    return best >= found.ends[0] + LATE * (found.ends[-1] - found.ends[0])


def _run(values: list[float], held_out: list[float] | None = None) -> Training:
    rows = {"validation": [Row(i, {"loss": value}) for i, value in enumerate(held_out)]} if held_out else {}
    return Training(signals={"loss": Series.of(values)}, rows=rows)


_FALLING = [2.3 * 0.95**i for i in range(40)]

FAULT = Fault(
    code="OPT010",
    slug="too-few-epochs",
    title="Stopped while still improving",
    detect=detect,
    needs=("loss",),
    fix="Run longer, with the schedule stretched, until the validation stops improving.",
    severity="advice",
    bigger_machine=BiggerMachine("speed-only", "it would get further in the same time"),
    examples=(
        Example("sick", _run(_FALLING), "falls to the last line"),
        Example("sick", _run(_FALLING, [1.05 * value for value in _FALLING]), "and so does the validation"),
        Example("healthy", _run([2.0 * 0.7**i + 0.5 for i in range(40)]), "level at the end"),
        Example("healthy", _run([0.5, 0.49] * 20), "a level line"),
        Example("look-alike", _run(_FALLING, [max(0.9, v) + 0.01 * i for i, v in enumerate(_FALLING)]), "the validation has turned"),
        Example("look-alike", _run([2.3 - 0.001 * i for i in range(40)]), "hardly moves"),
    ),
)
