"""Predictions and targets of different shapes are compared all against all.

What you see
------------
The loss falls to the variance of the targets and stays. Every prediction is the mean of the targets, whatever the input; on held-out
data the share of explained variance is about zero.

Why it happens
--------------
A prediction of shape (N, 1) and a target of shape (N,) broadcast to (N, N): every prediction is compared with the targets of all rows
of the batch. The best answer to that is their mean. Known losses warn once; a hand-written difference says nothing.

How it is told apart
--------------------
The shapes themselves are looked at: in known loss calls, and in the graph behind the loss, where a constant met a prediction of
another shape. A fault is a result larger than the prediction and than the target. One target for all rows, weights per class, quantiles
or a mask give a result of the shape of one side. Pairs that are meant have gradients on both sides, or an axis that was written out.

What to do
----------
Give both the same shape before the loss: `prediction.squeeze(-1)` or `target.unsqueeze(-1)`.

When this is wrong
------------------
A loss that compares all predictions with all targets on purpose, through shapes of different length; write the axis out and it is
quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Location, Row, Series, Training

# The shapes are exact. A batch of one row hides them, so not every sample must show it (starting value).
LEAST_SHARE = 0.5
CERTAIN = 1.0
_CLASS_LOSSES = ("cross_entropy", "nll_loss")  # their targets have another shape by definition

Shape = Sequence[int]


def detect(training: Training) -> Detection | None:
    """Look for a comparison whose result is larger than both of its sides."""
    if not training.has("loss_call") and not training.has("backward_graph"):
        raise SignalMissing("backward_graph")
    for signal, look in (("loss_call", _in_call), ("backward_graph", _in_graph)):
        rows = training.rows.get(signal, [])
        found = [(row, seen) for row in rows if (seen := look(row))]
        if len(found) > LEAST_SHARE * len(rows):
            return _detection(training, signal, found)
    return None


def _in_call(row: Row) -> str:
    prediction, target = row.get("input_shape"), row.get("target_shape")
    if prediction is None or target is None or row.get("kind") in _CLASS_LOSSES or len(prediction) == len(target):
        return ""
    result = _joined(prediction, target)
    if result is None or result in (tuple(prediction), tuple(target)):
        return ""
    return f"{_text(prediction)} against {_text(target)} gives {_text(result)}"


def _in_graph(row: Row) -> str:
    items = [item for item in row.get("broadcast") or () if item.get("result") and item.get("operand") is not None]
    return f"{_text(items[0]['operand'])} became {_text(items[0]['result'])}" if items else ""


def _joined(one: Shape, other: Shape) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(tuple(one), tuple(other))
    except ValueError:
        return None


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _detection(training: Training, signal: str, found: list[tuple[Row, str]]) -> Detection:
    (first, seen), last = found[0], found[-1][0]
    note = f"every prediction met the targets of all rows, in {len(found)} sampled steps"
    evidence = [Evidence(signal, (first.step, last.step), seen, "prediction and target of one shape", note)]
    scores = [row for row in training.rows.get("validation", []) if row.get("r2") is not None]
    if scores:
        at, score = scores[-1].step, float(scores[-1]["r2"])
        evidence.append(Evidence("validation", (at, at), f"{score:.3g}", "well above 0", "explained variance on unseen rows"))
    return Detection(CERTAIN, tuple(evidence), where=_where(first, training))


def _where(row: Row, training: Training) -> Location | None:
    place = row.get("where")
    return Location(str(place[0]), int(place[1])) if isinstance(place, list | tuple) and len(place) == 2 else training.where("loss")


def _called(prediction: list[int], target: list[int], kind: str = "mse_loss") -> Training:
    rows = [Row(i, {"kind": kind, "input_shape": prediction, "target_shape": target}) for i in range(3)]
    return Training(signals={"loss": Series.of([1.0] * 3)}, rows={"loss_call": rows})


def _graph(*items: Any) -> Training:
    return Training(signals={"loss": Series.of([1.0] * 3)}, rows={"backward_graph": [Row(i, {"broadcast": list(items)}) for i in range(3)]})


_PAIRS = {"op": "SubBackward0", "result": [32, 32], "operand": [32, 1]}
_LAST_BATCH = [Row(i, {"kind": "mse_loss", "input_shape": [n, 1], "target_shape": [n]}) for i, n in enumerate((32, 32, 1))]
_SELDOM = [Row(i, {"broadcast": [_PAIRS] if i == 0 else []}) for i in range(4)]

FAULT = Fault(
    code="LOS005",
    slug="loss-broadcast",
    title="Every prediction is compared with all targets",
    detect=detect,
    needs=("loss",),
    fix="Give prediction and target the same shape before the loss: prediction.squeeze(-1), or target.unsqueeze(-1).",
    explains=("loss-flat", "underfitting", "model-too-small", "lr-too-low", "labels-meaningless", "overfitting"),
    examples=(
        Example("sick", _called([32, 1], [32]), "(N, 1) against (N,) in mse_loss"),
        Example("sick", _called([32], [32, 1], "l1_loss"), "(N,) against (N, 1) in l1_loss"),
        Example("sick", _graph(_PAIRS), "(N, 1) against (N,) by hand"),
        Example("sick", Training(signals={"loss": Series.of([1.0])}, rows={"loss_call": _LAST_BATCH}), "the last batch holds one row"),
        Example("healthy", _called([32, 1], [32, 1]), "one shape"),
        Example("healthy", _graph(), "one shape by hand"),
        Example("look-alike", _called([32, 10], [32], "cross_entropy"), "class numbers"),
        Example("look-alike", _called([32, 4], []), "one number for all"),
        Example("look-alike", _called([32, 3], [32, 1], "huber_loss"), "quantiles against one target each"),
        Example("look-alike", _called([32, 1], [1, 32]), "all pairs on purpose, the axis written out"),
        Example(
            "known miss", Training(signals={"loss": Series.of([1.0])}, rows={"backward_graph": _SELDOM}), "one of several terms, seldom"
        ),
    ),
    plants=(
        Plant(
            "middle", "loop", r"loss = criterion\(output, batch_y\)", "loss = criterion(output, batch_y.squeeze(1))", kinds=("regression",)
        ),
        Plant(
            "severe",
            "loop",
            r"loss = criterion\(output, batch_y\)",
            "loss = ((output - batch_y.squeeze(1)) ** 2).mean()",
            kinds=("regression",),
        ),
    ),
    treatment=Treatment("same_shape", {}, moves="loss", direction="down"),
)
