"""Every target of a batch, or nearly, does not count: the loss has nothing to learn from.

What you see
------------
The loss is NaN, or exactly zero, from the first step, or in most of them.

Why it happens
--------------
Labels are masked with the loss's `ignore_index` by a condition that always holds: prompt and answer are both masked, the answer was cut
off at the longest length, the padding id equals a real one.

How it is told apart
--------------------
The share of targets that the loss ignores is counted in each sampled call. Masked language models ignore five of six, padded taggers
half; a batch without a single target that counts teaches nothing.

What to do
----------
Look at one batch of labels next to its inputs, and print how many are not the `ignore_index`.

When this is wrong
------------------
Batches of which some are meant to be empty: a stream in which the answer comes once in many.
"""

from __future__ import annotations

from statistics import median

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training

EMPTY = 0.5  # share of calls without any target that counts (starting value)
NEARLY = 0.995  # share of ignored targets: a suspicion (field guide, row 14: under 5 % count; masked models leave 15 %)
LEAST_CALLS = 2


def detect(training: Training) -> Detection | None:
    """Count the targets that do not count."""
    calls = [row for row in training.table("loss_call") if row.get("ignored") is not None and row.get("classes")]
    if len(calls) < LEAST_CALLS:
        return None
    shares = [float(row["ignored"]) for row in calls]
    empty = sum(share >= 1.0 for share in shares) / len(shares)
    middle = median(shares)
    if empty < EMPTY and not middle > NEARLY:
        return None
    strength = 0.97 if empty >= EMPTY else 0.5
    span = (calls[0].step, calls[-1].step)
    note = f"{empty:.0%} of {len(calls)} sampled batches have no target that counts"
    evidence = Evidence("loss_call", span, f"{middle:.1%} of the targets are ignored", "most of them count", note)
    return Detection(strength, (evidence,), where=training.where("loss"))


def _run(*ignored: float, kind: str = "cross_entropy") -> Training:
    rows = [Row(step, {"kind": kind, "classes": 20, "ignored": share}) for step, share in enumerate(ignored)]
    return Training(signals={"loss": Series.of([0.0] * 10)}, rows={"loss_call": rows})


FAULT = Fault(
    code="LAB004",
    slug="labels-all-ignored",
    title="(Almost) every target is ignored or masked",
    detect=detect,
    needs=("loss_call",),
    fix="Print how many labels of a batch are not the ignore_index; the condition that masks them always holds.",
    explains=("loss-not-finite", "loss-flat", "labels-meaningless", "underfitting", "loss-not-finite-op", "step-missing", "lr-too-low"),
    examples=(
        Example("sick", _run(1.0, 1.0, 1.0), "all masked"),
        Example("sick", _run(1.0, 0.9, 1.0, 1.0), "most batches without a target"),
        Example("healthy", _run(0.0, 0.0, 0.0), "all count"),
        Example("healthy", _run(0.62, 0.6, 0.63), "padding is ignored"),
        Example("look-alike", _run(0.85, 0.86, 0.84), "a masked language model"),
        Example("look-alike", _run(1.0, 0.9, 0.9, 0.9), "one empty batch"),
        Example("known miss", _run(0.99, 0.99, 0.99), "one target of a hundred counts"),
    ),
)
