"""One log holds several runs: restarts, a run that was resumed, repeats, or ranks that write into one file.

What you see
------------
The step or the epoch begins anew in the middle of the log, the header is written again, or a checkpoint is loaded.

Why it happens
--------------
Loggers append to the file of an earlier run; a job was restarted; several seeds or processes write into one file.

How it is told apart
--------------------
The count of steps goes back. Where it goes back to the beginning a new run begins; where it goes back a little a run was resumed, and
the lines that it did twice are left out. Counts that start again with every epoch are counted on. Equal lines of one step are
repeats of the same line.

What to do
----------
Read each run by itself (the report does) and write later runs into files of their own.

When this is wrong
------------------
A script that counts from zero in each of its phases reads like several runs.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Series, Training

WAYS = {"rank": "processes wrote into one log", "restart": "the count of steps began anew", "first": "the count of steps began anew"}


def detect(training: Training) -> Detection | None:
    """Look at how the reader split the log."""
    loss = training.series("loss")
    parts, resumes = int(training.fact("log_parts") or 1), training.fact("log_resumes") or []
    span = (int(loss.steps[0]), int(loss.steps[-1]))
    if parts > 1:
        how = WAYS.get(str(training.fact("log_part")), WAYS["first"])
        return Detection(0.95, (Evidence("loss", span, f"{parts} runs", "1 run", how),))
    lost = [each for each in resumes if each.get("lost")]
    if lost:
        seen = f"resumed {len(lost)} times" if len(lost) > 1 else f"resumed at {lost[0]['at']:.6g}"
        return Detection(0.9, (Evidence("loss", span, seen, "one stretch", "the steps that it did twice count once"),))
    return None


def _run(parts: int = 1, part: str = "first", **facts: object) -> Training:
    return Training(signals={"loss": Series.of([2.0, 1.0, 0.5])}, facts={"log_parts": parts, "log_part": part, **facts})


FAULT = Fault(
    code="CUR008",
    slug="runs-concatenated",
    title="Several runs in one log",
    detect=detect,
    needs=("loss",),
    fix="Read each run by itself, and let later runs write into files of their own.",
    severity="advice",
    examples=(
        Example("sick", _run(2, "restart"), "two runs, appended"),
        Example("sick", _run(4, "rank"), "four ranks in one file"),
        Example("sick", _run(log_resumes=[{"at": 500.0, "lost": 12}]), "resumed from a checkpoint"),
        Example("healthy", _run(), "one run"),
        Example("healthy", Training(signals={"loss": Series.of([2.0, 1.0])}), "a watched run"),
        Example("look-alike", _run(log_resumes=[{"at": 500.0, "lost": 0}]), "a checkpoint was loaded at the start"),
        Example("look-alike", _run(log_resumes=[]), "steps counted within each epoch"),
    ),
)
