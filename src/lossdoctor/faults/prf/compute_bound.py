"""The device is really busy: its arithmetic, or its memory's bandwidth, is the limit.

What you see
------------
Steps take long although data are there at once. Processor or accelerator are fully used.

Why it happens
--------------
The model and its batches are as large as they are: nothing is wrong.

How it is told apart
--------------------
A captured step with four times the rows takes about four times as long: hardly anything is fixed cost. The run waits for data in a small
part of its time, so that a faster device would make all of it faster.

What to do
----------
If it must be sooner: lower precision where the device has units for it, `torch.compile`, then a faster device.
`lossdoctor machine` says how much each could give at most, `lossdoctor speed` which levers pay here.

When this is wrong
------------------
An operation that is written badly (a loop over rows in Python) goes by the row as well; mend it first.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Share of a step's time that does not go by the row: wide layers and small transformers .05 to .25, tiny steps .74 up (this machine).
FIXED, BUSY = 0.5, 0.3
WAITS = 0.3  # share of the time from one step to the next outside of its compute; healthy loops .0 to .3 (field guide)


def detect(training: Training) -> Detection | None:
    """Compare a step with one of four times the rows, and the gaps between steps with the steps."""
    facts = training.experiment("throughput")
    fixed, seconds = facts.get("fixed_share"), facts.get("seconds")
    wall = training.series("wall")
    if not isinstance(fixed, int | float) or not isinstance(seconds, int | float) or len(wall) < 3:
        return None
    gap = training.signals.get("gap_seconds", Series.of([])).finite()
    step = float(np.median(np.diff(wall.values)))
    outside = float(np.median(gap.values)) / step if len(gap) and step > 0 else 0.0
    strength = 1.0 - slope(float(fixed), BUSY, FIXED) if 0.0 <= fixed <= 1.0 else 0.0
    if not outside < WAITS or not strength > 0:
        return None
    rate = facts.get("flops")
    note = f"{rate / seconds / 1e9:.3g} GFLOP/s in products" if isinstance(rate, int | float) and seconds > 0 else ""
    span = (int(wall.steps[0]), int(wall.steps[-1]))
    return Detection(strength, (Evidence("throughput", span, f"{fixed:.0%} of a step is fixed cost", f"above {FIXED:.0%}", note),))


def _run(fixed: float | None, outside: float = 0.05) -> Training:
    steps, step = 40, 0.1
    facts = {"fixed_share": fixed, "seconds": step * (1 - outside), "flops": 5e8}
    signals = {"wall": Series.of([step * i for i in range(steps)]), "gap_seconds": Series.of([step * outside] * steps)}
    return Training(signals=signals, experiments={"throughput": Experiment("throughput", "done", 1.0, facts)})


FAULT = Fault(
    code="PRF006",
    slug="compute-bound",
    title="Really busy: the device is the limit",
    detect=detect,
    needs=("throughput", "wall"),
    fix="Nothing is wrong; lower precision, torch.compile or a faster device would make it sooner (`lossdoctor machine`).",
    severity="advice",
    bigger_machine=BiggerMachine("yes", "the device is the limit"),
    examples=(
        Example("sick", _run(0.02), "four times the rows take four times as long"),
        Example("sick", _run(0.2), "a fifth is fixed cost"),
        Example("healthy", _run(0.9), "tiny steps"),
        Example("healthy", _run(0.75), "small steps"),
        Example("look-alike", _run(0.02, 0.8), "busy when it runs, and it waits for data"),
        Example("look-alike", _run(None), "the batch cannot be enlarged"),
    ),
)
