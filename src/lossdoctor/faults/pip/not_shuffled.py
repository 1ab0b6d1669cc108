"""The data arrive sorted: each batch holds one class, or a few.

What you see
------------
A saw-tooth in the loss with the period of an epoch. The model answers with the class that it saw last; validation jumps about.

Why it happens
--------------
Files are read folder by folder, class by class, and the loader does not shuffle; or a sampler takes them in order.

How it is told apart
--------------------
In each sampled batch the share of pairs of rows with equal targets is counted, which does not depend on the batch's size, and set
against the same share in all batches together. Shuffled data differ by chance alone. Where fewer batches were seen than an epoch has,
neighbours in the data set are compared with rows drawn at random.

What to do
----------
`DataLoader(..., shuffle=True)`; of a stream, a shuffle buffer; of arrays, permute inputs and targets together once.

When this is wrong
------------------
Batches that are put together by class on purpose: metric learning, few-shot episodes, one batch for each side of a game.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.strength import slope

# Excess of equal pairs within a batch, over what is left to exceed: 0 +- .05 when shuffled, .6 to 1 when sorted (measured).
CHANCE, SORTED = 0.25, 0.5
LEAST_CALLS, LEAST_ROWS = 5, 4
KINDS = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "multi_margin_loss")


def detect(training: Training) -> Detection | None:
    """Compare how often targets agree within batches and over all."""
    calls = [row for row in training.table("loss_call") if row.get("kind") in KINDS and row.get("class_counts")]
    if training.roles or _several_calls(calls) or any(len(row.get("target_shape") or ()) > 2 for row in calls):
        return None
    found = _neighbours(training) or _batches(calls)
    if found is None:
        return None
    excess, seen, expected, note = found
    strength = 0.94 * slope(excess, CHANCE, SORTED)
    if strength <= 0:
        return None
    span = (calls[0].step, calls[-1].step) if calls else (0, 0)
    return Detection(strength, (Evidence("loss_call", span, seen, expected, note),), where=training.where("loader"))


def _several_calls(calls: Sequence[Row]) -> bool:
    """Tell whether a step has more than one call: real and made-up examples in batches of their own, or a target for each position."""
    steps = [row.step for row in calls]
    return len(set(steps)) < len(steps)


def _batches(calls: Sequence[Row]) -> tuple[float, str, str, str] | None:
    counts = [[float(each) for each in row["class_counts"]] for row in calls]
    counts = [each for each in counts if sum(each) >= LEAST_ROWS and len(each) == len(counts[0])]
    if len(counts) < LEAST_CALLS:
        return None
    within = median(_equal_pairs(each) for each in counts)
    over_all = _equal_pairs([sum(column) for column in zip(*counts, strict=True)])
    if over_all >= 1:
        return None
    note = f"pairs of rows of one batch with the same target, in {len(counts)} sampled batches"
    return (within - over_all) / (1 - over_all), f"{within:.0%}", f"about {over_all:.0%}, as over all batches", note


def _equal_pairs(counts: Sequence[float]) -> float:
    rows = sum(counts)
    return sum(count * (count - 1) for count in counts) / (rows * (rows - 1)) if rows > 1 else 0.0


def _neighbours(training: Training) -> tuple[float, str, str, str] | None:
    """Return what the data set itself shows where it is read in order."""
    facts = training.found("loader")
    near, apart = facts.get("neighbours"), facts.get("apart")
    if near is None or apart is None or facts.get("shuffle") or not float(apart) < 1:
        return None
    excess = (float(near) - float(apart)) / (1 - float(apart))
    return (
        excess,
        f"{float(near):.0%}",
        f"about {float(apart):.0%}, as rows drawn at random",
        "neighbours in the data set with the same target",
    )


def _run(*batches: list[int], loader: dict[str, object] | None = None, each: int = 1) -> Training:
    rows = [
        Row(step, {"kind": "cross_entropy", "class_counts": counts, "target_shape": [sum(counts)]})
        for step, counts in enumerate(batches)
        for _ in range(each)
    ]
    done = {"loader": Experiment("loader", "done", 0.1, loader)} if loader else {}
    return Training(signals={"loss": Series.of([1.1] * 8)}, rows={"loss_call": rows}, experiments=done)


_SORTED = ([32, 0, 0], [32, 0, 0], [20, 12, 0], [0, 32, 0], [0, 0, 32], [0, 0, 32])
_MIXED = ([12, 10, 10], [9, 12, 11], [11, 11, 10], [8, 14, 10], [12, 9, 11], [10, 12, 10])

_SCALED = r"^(x_train, x_test = \(x_train - mean\) / std, \(x_test - mean\) / std)$"
_IN_ORDER = r"\1\norder = y_train.argsort()\nx_train, y_train = x_train[order], y_train[order]"


FAULT = Fault(
    code="PIP002",
    slug="not-shuffled",
    title="Data arrive sorted or never shuffled",
    detect=detect,
    needs=("loss_call",),
    fix="DataLoader(..., shuffle=True), or permute inputs and targets together once.",
    severity="warning",
    explains=(
        "loss-noisy",
        "loss-flat",
        "underfitting",
        "lr-too-high",
        "labels-meaningless",
        "loss-spike",
        "class-imbalance",
        "split-shift",
        "overfitting",
        "model-too-small",
        "labels-misencoded",
        "plateau-then-drop",
        "loss-diverged",
        "train-mode-in-eval",
        "batchnorm-statistics",
    ),
    examples=(
        Example("sick", _run(*_SORTED), "class by class"),
        Example("sick", _run([32, 0, 0], loader={"shuffle": False, "neighbours": 1.0, "apart": 0.34}), "the data set is sorted"),
        Example("healthy", _run(*_MIXED), "shuffled"),
        Example("healthy", _run(*_MIXED, loader={"shuffle": False, "neighbours": 0.34, "apart": 0.33}), "in order, and mixed before"),
        Example("look-alike", _run(*_SORTED, each=2), "two calls in a step: real and made up"),
        Example("look-alike", _run([32, 0, 0], [31, 1, 0], [32, 0, 0], [30, 1, 1], [32, 0, 0], [31, 0, 1]), "one class dominates"),
        Example("known miss", _run([3, 0], [0, 3], [3, 0], [0, 3], [3, 0], [0, 3]), "batches of three"),
    ),
    plants=(Plant("middle", "data", _SCALED, _IN_ORDER, kinds=("loader",), also=(("data", r", shuffle=True\)$", ")"),)),),
    treatment=Treatment("shuffle", {}, moves="validation", direction="down"),
    decides_with=("loader",),
)
