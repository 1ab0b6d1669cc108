"""Too few points to tell anything of the run.

What you see
------------
A log of a handful of lines: the run was stopped, crashed, or logs seldom.

Why it happens
--------------
Early stops, crashes, a logging interval of about the length of the run, or a file that was copied while the run began.

How it is told apart
--------------------
By counting: fewer than five values of the curve show neither a trend nor its noise. A loss that is not a number needs one line only,
and is told all the same.

What to do
----------
Let it run longer, or log more often; then read the log again. `lossdoctor run` looks at every step, whatever the script logs.

When this is wrong
------------------
A few lines that each stand for an epoch of a large data set may say enough; the curve itself is in the report.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training

# Theil and Sen's slope has no 95 % interval below zero for fewer than five points; up to seven it is wide (starting values).
TOO_FEW, FEW = 5, 8


def detect(training: Training) -> Detection | None:
    """Count the values of the curve and of the validation; the longer of both counts."""
    loss = training.series("loss")
    count = max(len(loss), len(training.rows.get("validation", [])))
    if count >= FEW:
        return None
    seen = Evidence("loss", (int(loss.steps[0]), int(loss.steps[-1])), f"{count} values", f"{FEW} or more")
    return Detection(0.9 if count < TOO_FEW else 0.5, (seen,))


def _run(count: int, passes: int = 0) -> Training:
    rows = {"validation": [Row(i, {"loss": 1.0 / (i + 1)}) for i in range(passes)]} if passes else {}
    return Training(signals={"loss": Series.of([2.0 - 0.1 * i for i in range(count)])}, rows=rows)


FAULT = Fault(
    code="CUR007",
    slug="run-too-short",
    title="Too few points to tell",
    detect=detect,
    needs=("loss",),
    fix="Let it run longer, or log more often, and read the log again.",
    severity="advice",
    examples=(
        Example("sick", _run(1), "one line"),
        Example("sick", _run(4), "four lines"),
        Example("sick", _run(2, 2), "two epochs with validation"),
        Example("healthy", _run(40), "forty lines"),
        Example("healthy", _run(1000), "a thousand lines"),
        Example("look-alike", _run(2, 90), "validation at every step, the loss logged twice"),
        Example("look-alike", _run(6), "six lines: suspected only"),
    ),
)
