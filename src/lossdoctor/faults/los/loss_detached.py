"""The loss is cut from the model: backward runs, and no weight gets a gradient.

What you see
------------
The loss stays where it starts. Without a further line `backward()` raises "element 0 of tensors does not require grad"; the line that
silences it (`loss.requires_grad = True`, `Variable(loss, requires_grad=True)`, `torch.tensor(loss, requires_grad=True)`) mends nothing.

Why it happens
--------------
`.item()`, `.data`, `.detach()`, numpy, an argmax or `torch.no_grad()` stands between the model and the loss.

How it is told apart
--------------------
The graph behind the value that backward is called on reaches none of the model's weights, and at every look none of them has a
gradient although they can learn. A loop that clears gradients too early has them right after backward; a frozen model has nothing that
can learn.

What to do
----------
Compute the loss from the model's outputs with torch's own functions, on the way that `backward()` goes, and take out the line that
sets `requires_grad`.

When this is wrong
------------------
A script that takes gradients of its inputs alone and never means to train.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training

LEAST_STEPS = 3


def detect(training: Training) -> Detection | None:
    """Look for backward calls after which no weight of the model has a gradient, on a graph that reaches none."""
    rows = training.table("coverage")
    if training.steps < LEAST_STEPS or training.roles:
        return None
    able = [row for row in rows if (row.get("model_parameters") or 0) > 0]
    if not able or any((row.get("model_with_gradient") or 0) or (row.get("held_with_gradient") or 0) for row in able):
        return None
    if any((row.get("frozen_elements") or 0) > (row.get("model_elements") or 0) for row in able):
        return None  # little can learn: nothing-trainable
    graphs = [row for row in training.rows.get("backward_graph", []) if row.get("leaves") is not None]
    if not graphs or any(int(row["leaves"]) > 1 for row in graphs):
        return None
    ops = graphs[-1].get("ops") or []
    span = (able[0].step, able[-1].step)
    count = able[-1]["model_parameters"]
    seen = Evidence("coverage", span, f"0 of {count} parameters with a gradient", f"{count}", "after backward")
    graph = Evidence(
        "backward_graph", span, " ".join(map(str, ops[:5])) or "a value without a history", "the way to the model", "behind the loss"
    )
    return Detection(0.96, (seen, graph), where=training.where("backward"))


def _run(gradients: int, leaves: int | None = 1, parameters: int = 6, ops: tuple[str, ...] = (), **facts: Any) -> Training:
    cover = {"model_parameters": parameters, "model_with_gradient": gradients, "held": parameters, "held_with_gradient": gradients}
    rows = {"coverage": [Row(step, cover) for step in (0, 5, 9)]}
    if leaves is not None:
        rows["backward_graph"] = [Row(step, {"leaves": leaves, "ops": list(ops)}) for step in (0, 5, 9)]
    return Training(signals={"loss": Series.of([2.3] * 10)}, rows=rows, facts=facts)


FAULT = Fault(
    code="LOS007",
    slug="loss-detached",
    title="The loss is cut from the graph",
    detect=detect,
    needs=("coverage", "backward_graph"),
    fix="Compute the loss from the outputs with torch's own functions, without .item(), .data, detach, numpy or no_grad on the way.",
    explains=(
        "step-missing",
        "loss-flat",
        "underfitting",
        "labels-meaningless",
        "model-too-small",
        "lr-too-low",
        "optimizer-lacks-parameters",
        "batch-too-small",
        "module-unregistered",
    ),
    examples=(
        Example("sick", _run(0), "requires_grad set on the value"),
        Example("sick", _run(0, ops=("MulBackward0",)), "a tensor made anew"),
        Example("healthy", _run(6, 6), "all get one"),
        Example("healthy", _run(3, 3), "half of them"),
        Example("look-alike", _run(0, 6), "reached, and cleared before the look"),
        Example("look-alike", _run(0, parameters=0), "a frozen model"),
        Example("known miss", _run(0, 2), "two values made anew"),
    ),
)
