"""Labels are encoded in another way than the loss wants: scaled, of another sign, all one class.

What you see
------------
A loss that falls below zero, or to zero at once; a score that does not fit it; a class that is never predicted.

Why it happens
--------------
Masks went through an image transform that divides by 255 and became all zero as whole numbers, or stayed at 0 and 255; labels are -1
and 1 for a loss that wants 0 and 1; one-hot rows were scaled.

How it is told apart
--------------------
The targets of each sampled call are set against what the loss takes: the binary loss of logits takes 0 to 1, the cross entropy rows that
sum to one, and several classes. One class in all batches counts only where the loss also falls to nothing, since a contrastive
loss has its positive at the same place on purpose, and does not.

What to do
----------
Print the distinct labels of a batch where they enter the loss, and follow them back to the file.

When this is wrong
------------------
A data set of one class.
"""

from __future__ import annotations

from collections.abc import Sequence

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training

LEAST_CALLS = 3
ROUNDING = 0.01
NOTHING = 0.05  # loss over that of equal probabilities (starting value)
LEAST_TARGETS = 100
LARGE = 100.0  # numbers beyond it name no class: pixels of a mask
CLASSES = ("cross_entropy", "nll_loss")


def detect(training: Training) -> Detection | None:
    """Compare the targets with what the loss takes."""
    calls = [row for row in training.table("loss_call") if None not in (row.get("target_min"), row.get("target_max"))]
    kinds = {str(row.get("kind")) for row in calls}
    if len(calls) < LEAST_CALLS or len(kinds) != 1 or training.roles:
        return None
    kind = kinds.pop()
    low, high = (choose(float(row[name]) for row in calls) for choose, name in ((min, "target_min"), (max, "target_max")))
    if kind == "binary_cross_entropy_with_logits":
        return _outside(training, calls, low, high)
    shape = calls[0].get("input_shape")
    if kind == "cross_entropy" and shape and shape == calls[0].get("target_shape") and high > 1 + ROUNDING:
        return _told(training, calls, f"rows of targets from {low:.3g} to {high:.3g}", "rows that sum to 1", 0.93)
    return _one_class(training, calls) if kind in CLASSES else None


def _outside(training: Training, calls: Sequence[Row], low: float, high: float) -> Detection | None:
    signs = low < -ROUNDING
    if not signs and not high > LARGE:
        return None  # up to some dozens they are class numbers: another loss is wanted
    return _told(training, calls, f"targets from {low:.3g} to {high:.3g}", "0 to 1", 0.96, "the loss has no lower end outside of it")


def _one_class(training: Training, calls: Sequence[Row]) -> Detection | None:
    counts = [row["class_counts"] for row in calls if row.get("class_counts")]
    if len(counts) < len(calls) or len({len(each) for each in counts}) != 1 or len(counts[0]) < 2:
        return None
    totals = [sum(column) for column in zip(*counts, strict=True)]
    seen = [number for number, total in enumerate(totals) if total]
    loss, zero = training.series("loss").finite(), calls[0].get("zero_loss")
    if len(seen) != 1 or sum(totals) < LEAST_TARGETS or not len(loss) or not zero or not loss.last < NOTHING * float(zero):
        return None
    note = f"{sum(totals)} targets in {len(calls)} sampled batches; the loss is {loss.last:.2g}"
    return _told(training, calls, f"every target is class {seen[0]}", f"{len(totals)} classes", 0.92, note)


def _told(training: Training, calls: Sequence[Row], seen: str, expected: str, strength: float, note: str = "") -> Detection:
    evidence = Evidence("loss_call", (calls[0].step, calls[-1].step), seen, expected, note or "as they enter the loss")
    return Detection(strength, (evidence,), where=training.where("loss"))


def _run(
    kind: str, low: float, high: float, end: float = 0.3, counts: list[int] | None = None, calls: int = 6, **fields: object
) -> Training:
    call = {"kind": kind, "target_min": low, "target_max": high, "class_counts": counts, "zero_loss": 1.1, **fields}
    return Training(signals={"loss": Series.of([1.1] * 5 + [end] * 5)}, rows={"loss_call": [Row(step, call) for step in range(calls)]})


_BINARY = "binary_cross_entropy_with_logits"

FAULT = Fault(
    code="LAB003",
    slug="labels-misencoded",
    title="Labels off by one, wrong dtype, scaled, index against one-hot",
    detect=detect,
    needs=("loss_call",),
    fix="Print the distinct labels of a batch where they enter the loss, and give them the encoding that it takes.",
    explains=(
        "loss-diverged",
        "labels-meaningless",
        "loss-flat",
        "underfitting",
        "metric-wrong",
        "too-few-examples",
        "class-imbalance",
        "lr-too-high",
    ),
    examples=(
        Example("sick", _run(_BINARY, -1.0, 1.0), "-1 and 1"),
        Example("sick", _run(_BINARY, 0.0, 255.0), "a mask of 0 and 255"),
        Example("sick", _run("cross_entropy", 0.0, 0.0, 0.001, [64, 0, 0]), "a mask divided by 255"),
        Example("healthy", _run(_BINARY, 0.0, 1.0), "0 and 1"),
        Example("healthy", _run("cross_entropy", 0.0, 2.0, 0.1, [20, 20, 24]), "three classes"),
        Example("look-alike", _run("cross_entropy", 0.0, 0.0, 0.9, [64, 0, 0]), "a contrastive loss: the positive comes first"),
        Example("look-alike", _run(_BINARY, 0.0, 9.0), "class numbers: another loss is wanted"),
        Example("look-alike", _run(_BINARY, -1.0, 1.0, calls=2), "seen twice only"),
        Example("known miss", _run("cross_entropy", 1.0, 3.0, 0.1, [0, 20, 20, 24]), "one too high, with a spare output"),
    ),
)
