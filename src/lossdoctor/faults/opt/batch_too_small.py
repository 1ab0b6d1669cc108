"""A tiny batch: the gradient is noisy, and most of each step is fixed cost.

What you see
------------
An epoch takes long, the loss jumps from step to step, and a faster device changes little.

Why it happens
--------------
A step costs nearly the same with one row as with sixteen: starting the operations, the optimiser's update and the loop are paid for each
step. And the gradient of a few rows points anywhere, so that the rate must be small.

How it is told apart
--------------------
The loader's batches have eight rows or fewer of many, and a captured step of four times the rows takes hardly longer. The
spread of the loss from step to step is told beside it.

What to do
----------
Larger batches, with the rate retuned: by the square root of the factor for adaptive optimisers, in proportion for SGD. `lossdoctor speed`
tries four times the rows.

When this is wrong
------------------
Where memory allows no more rows, accumulate gradients instead; that mends the noise, not the time. Batches that are cut by hand, without
a loader, are not looked at. With very few data small batches may generalise better.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

TINY, ASKED = 8, 4  # rows: up to eight may be too few, up to four are worth a measurement; starting values
MANY = 16  # times as many rows in the data: else the batch is the data
MOVING, FIXED = 0.4, 0.7  # share of a step that does not go by the row, as in `launch-bound`
SUSPECTED = 0.5  # by the count of rows alone
SHORT = 0.05  # s: of a longer step most goes by the row, and nothing is measured


def detect(training: Training) -> Detection | None:
    """Count the rows of a batch, and see what more rows would cost."""
    loader = training.fact("loader") or {}
    batch, rows = loader.get("batch_size"), loader.get("rows")
    if not isinstance(batch, int) or not isinstance(rows, int) or not 0 < batch <= TINY or rows < MANY * batch:
        return None
    if not training.has("throughput"):
        return _by_count(training, batch, rows)
    facts = training.experiment("throughput")
    fixed, growth = facts.get("fixed_share"), facts.get("growth")
    if not isinstance(fixed, int | float) or not 0.0 <= fixed <= 1.0:
        return None
    evidence = Evidence("throughput", (0, 0), f"{fixed:.0%} of a step is fixed cost", f"below {MOVING:.0%}", _noise(training))
    gain = {"time": float(fixed) * (1 - 1 / growth)} if isinstance(growth, int) and growth > 1 else {}
    strength = slope(float(fixed), MOVING, FIXED)
    return Detection(strength, (evidence, _counted(training, batch, rows)), gain=gain) if strength > 0 else None


def _by_count(training: Training, batch: int, rows: int) -> Detection | None:
    wall = training.signals.get("wall", Series.of([])).finite()
    if len(wall) < 2:
        raise SignalMissing("throughput")
    if batch > ASKED or not float(np.median(np.diff(wall.values))) < SHORT:
        return None
    return Detection(SUSPECTED, (_counted(training, batch, rows),))


def _counted(training: Training, batch: int, rows: int) -> Evidence:
    return Evidence("batch_rows", (0, max(0, training.steps - 1)), f"{batch} of {rows} rows a step", f"more than {TINY}")


def _noise(training: Training) -> str:
    """Say how far the loss of a step lies from that of the next, against its mean."""
    loss = training.signals.get("loss", Series.of([])).finite().values
    if len(loss) < MANY or not abs(float(loss.mean())) > 0:
        return ""
    return f"from step to step the loss changes by {float(np.median(np.abs(np.diff(loss)))) / abs(float(loss.mean())):.0%} of its mean"


def _run(batch: int, fixed: float | None, rows: int = 1400, step: float = 0.001) -> Training:
    done = {} if fixed is None else {"throughput": Experiment("throughput", "done", 1.0, {"fixed_share": fixed, "growth": 4})}
    signals = {"wall": Series.of([step * i for i in range(40)]), "loss": Series.of([1.0 + 0.4 * (i % 2) for i in range(40)])}
    return Training(signals=signals, facts={"loader": {"batch_size": batch, "rows": rows}}, experiments=done)


FAULT = Fault(
    code="OPT011",
    slug="batch-too-small",
    title="Gradient noise from a tiny batch",
    detect=detect,
    needs=("loader",),
    decides_with=("throughput",),
    fix="Use larger batches with the rate retuned; `lossdoctor speed` tries four times the rows.",
    severity="advice",
    bigger_machine=BiggerMachine("no", "a faster device waits for the next operation just the same"),
    examples=(
        Example("sick", _run(1, 0.95), "row by row"),
        Example("sick", _run(4, 0.8), "four rows"),
        Example("healthy", _run(32, 0.9), "a small network with ordinary batches"),
        Example("healthy", _run(256, 0.1), "large batches"),
        Example("look-alike", _run(2, 0.1), "two large images, which keep the device busy"),
        Example("look-alike", _run(4, 0.95, rows=4), "four rows are all there are"),
        Example("look-alike", _run(2, None, step=0.5), "long steps, of which nothing was measured"),
    ),
)
