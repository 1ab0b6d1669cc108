"""Too little work per step: most of its time is spent on starting operations.

What you see
------------
Steps are short, and the processor or accelerator is hardly used. A faster one changes little.

Why it happens
--------------
Each operation costs the same few microseconds to be started, however many rows it works on. Tiny batches, narrow layers and loops over
time steps or samples in Python make steps of many small operations.

How it is told apart
--------------------
A captured step is done again with four times the rows, under the clock of the process. Where that takes hardly longer, most of a step's
time does not go by the row: it is fixed cost. A device that is busy takes four times as long.

What to do
----------
Larger batches with the rate retuned; `torch.compile`; whole tensors in place of loops. `lossdoctor speed` measures what pays.

When this is wrong
------------------
A small model whose batch must be small, for the noise or for the data, has nothing to mend. Large embeddings or optimiser states cost
the same whatever the rows, and are no launching.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Training
from lossdoctor.derive.strength import slope

# Share of a step's time that does not go by the row: wide layers .0 to .25, digits classifiers of 64 rows .74 to .94 (this machine).
BUSY, FIXED = 0.4, 0.7
MOVES = 0.5  # share of the step that moving its bytes takes: above, the fixed cost is the optimiser's, not launching


def detect(training: Training) -> Detection | None:
    """Compare a step with one of four times the rows."""
    facts = training.experiment("throughput")
    fixed, seconds, peaks = facts.get("fixed_share"), facts.get("seconds"), facts.get("peaks") or {}
    if not isinstance(fixed, int | float) or not isinstance(seconds, int | float) or not seconds > 0:
        return None
    bandwidth = peaks.get("bandwidth")
    moving = (facts.get("bytes") or 0.0) / bandwidth / seconds if isinstance(bandwidth, int | float) and bandwidth > 0 else 0.0
    strength = 0.0 if moving > MOVES else slope(float(fixed), BUSY, FIXED)
    if not strength > 0:
        return None
    growth = facts.get("growth")
    gain = {"time": float(fixed) * (1 - 1 / growth)} if isinstance(growth, int) and growth > 1 else {}  # of a row's time, in larger batches
    count = facts.get("operations")
    note = f"{count} operations of {1e6 * seconds / count:.3g} us each" if isinstance(count, int) and count else ""
    evidence = Evidence("throughput", (0, 0), f"{fixed:.0%} of a step is fixed cost", f"below {BUSY:.0%}", note)
    return Detection(strength, (evidence,), gain=gain)


def _run(fixed: float | None, seconds: float = 0.001, size: float = 1e6) -> Training:
    facts = {
        "fixed_share": fixed,
        "seconds": seconds,
        "operations": 60,
        "bytes": size,
        "peaks": {"bandwidth": 2e10, "launch_seconds": 3e-6},
    }
    return Training(experiments={"throughput": Experiment("throughput", "done", 1.0, facts)})


FAULT = Fault(
    code="PRF002",
    slug="launch-bound",
    title="Too little work per step for the device",
    detect=detect,
    needs=("throughput",),
    fix="Use larger batches with the rate retuned, or torch.compile; `lossdoctor speed` measures what pays.",
    severity="advice",
    bigger_machine=BiggerMachine("no", "a faster device waits for the next operation just the same"),
    examples=(
        Example("sick", _run(0.9), "four times the rows take hardly longer"),
        Example("sick", _run(0.8), "a small batch"),
        Example("healthy", _run(0.05), "four times the rows take four times as long"),
        Example("healthy", _run(0.3), "half as long again, each"),
        Example("look-alike", _run(0.9, 0.1, 4e9), "the optimiser moves a large state"),
        Example("look-alike", _run(None), "the batch cannot be enlarged"),
    ),
)
