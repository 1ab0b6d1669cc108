"""The signal `backward_graph`: what the graph behind a loss shows, also of a loss written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from lossdoctor.record.probes.nodes import PASSING, base_name, output_shape, through

MOST_NODES = 2_000  # of which the walk takes about 2 ms, once in many steps
MOST_LEAF_NODES = 20_000
MOST_OPS = 30

# Layers end the part of the graph that is the loss.
_LAYERS = frozenset(
    (
        "AccumulateGrad", "Addmm", "Mm", "Bmm", "Baddbmm", "Addbmm", "Addmv", "Mv", "Dot", "Linear", "MkldnnLinear", "Bilinear",
        "Convolution", "ConvolutionOverrideable", "MkldnnConvolution", "CudnnConvolution", "SlowConv2D", "ConvDepthwise2D",
        "Embedding", "EmbeddingBag", "CudnnRnn", "MkldnnRnnLayer", "ThnnFusedLstmCell", "ThnnFusedGruCell", "NativeBatchNorm",
        "CudnnBatchNorm", "MiopenBatchNorm", "NativeLayerNorm", "NativeGroupNorm", "FusedRmsNorm", "CompiledFunction",
        "ScaledDotProductFlashAttentionForCpu", "ScaledDotProductFlashAttention", "ScaledDotProductEfficientAttention",
    )
)  # fmt: skip
# What stands between a regression loss and the difference that it is made of. Exp is left out: behind it a difference of all pairs
# is a kernel, which is meant.
_REDUCING = frozenset(("Mean", "Sum", "Nansum", "Nanmean", "LinalgVectorNorm", "Norm", "Median", "Stack", "Cat"))
_ELEMENTWISE = frozenset(
    (
        "Pow", "Abs", "Neg", "Sqrt", "Log", "Log1P", "Cosh", "Softplus", "Clamp", "ClampMin", "ClampMax", "Minimum", "Maximum", "Where",
        "Add", "Sub", "Rsub", "Mul", "Div", "SmoothL1Loss", "HuberLoss", "MseLoss",
    )
)  # fmt: skip
_MEETING = ("Sub", "Rsub", "Add", "Mul", "Div", "Minimum", "Maximum")  # of two operands
_EXPANDED = ("MseLoss", "SmoothL1Loss", "HuberLoss")  # expand their operands before they meet
_WANTS_LOGITS = ("LogSoftmax", "Logsumexp", "BinaryCrossEntropyWithLogits", "NllLoss", "NllLoss2D")


def describe_graph(loss: Tensor) -> dict[str, Any]:
    """Describe the graph behind a value that backward is called on; before backward, which frees it.

    20 nodes: 0.06 ms; 1000 nodes: 1 ms (1 thread, busy machine).

    Args:
        loss: the value.

    Returns:
        The fields of `backward_graph` in docs/architecture.md.

    Example:
        >>> import torch
        >>> prediction = torch.ones(3, 1, requires_grad=True) * 2
        >>> describe_graph(((prediction - torch.ones(3)) ** 2).mean())["broadcast"][0]["result"]
        [3, 3]
    """
    region = list(_loss_nodes(loss.grad_fn))
    found, seen, complete = _leaves(loss, MOST_NODES)
    return {
        "broadcast": list(_broadcasts(loss.grad_fn)),
        "ops": list(dict.fromkeys(node.name() for node in region))[:MOST_OPS],
        "probability_op": _probability(region),
        "leaves": len(found),
        "complete": complete,
        "packed": any("PackPaddedSequence" in node.name() for node in seen),
        "requires_grad": loss.requires_grad,
    }


def leaves(loss: Tensor) -> list[Tensor]:
    """Return the leaves that the loss's gradient reaches; 500 nodes take 0.5 ms.

    Example:
        >>> import torch
        >>> weight = torch.ones(2, requires_grad=True)
        >>> leaves((weight * 3).sum())[0] is weight
        True
    """
    return _leaves(loss, MOST_LEAF_NODES)[0]


def _leaves(loss: Tensor, most: int) -> tuple[list[Tensor], set[Any], bool]:
    """Return the leaves, the nodes that were walked through, and whether that was all of them."""
    if loss.grad_fn is None:
        return ([loss] if loss.requires_grad else []), set(), True
    seen, todo = {loss.grad_fn}, [loss.grad_fn]
    found: dict[int, Tensor] = {}
    while todo and len(seen) <= most:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            found[id(variable)] = variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return list(found.values()), seen, not todo


def _loss_nodes(start: Any) -> Iterator[Any]:
    """Yield the nodes from the loss down to the first layers, nearest first."""
    seen, todo = {start}, [start]
    for node in todo:  # grows while it is walked
        if node is None or len(seen) > MOST_NODES:
            continue
        yield node
        if base_name(node) not in _LAYERS:
            fresh = [following for following, _ in node.next_functions if following is not None and following not in seen]
            seen.update(fresh)
            todo.extend(fresh)


def _probability(region: list[Any]) -> dict[str, str] | None:
    """Return the softmax or sigmoid whose output enters what wants logits (or log-probabilities), if any."""
    for node in region:
        if base_name(node) not in _WANTS_LOGITS or not node.next_functions:
            continue
        source = through(node.next_functions[0][0])
        if source is not None and base_name(source) in ("Softmax", "Sigmoid"):
            return {"op": source.name(), "into": node.name()}
    return None


def _broadcasts(start: Any) -> Iterator[dict[str, Any]]:
    """Yield where a constant met a prediction of another shape so that all pairs were formed.

    Looked for between the loss and its layers, through elementwise and reducing nodes only. A prediction (N, 1), (1, N) or (N,) becomes
    (N, N). Where both sides carry a gradient, or the prediction was given its axis right there, all pairs are meant.
    """
    seen: set[Any] = {start}
    todo: list[tuple[Any, bool]] = [(start, False)]
    while todo and len(seen) <= MOST_NODES:
        node, partly = todo.pop()
        if node is None:
            continue
        name = base_name(node)
        met = _all_pairs(node, name)
        if met is not None and (not partly or name in ("Sub", "Rsub")):
            yield met
        elif met is None and (name in _ELEMENTWISE or name in _REDUCING or name in PASSING):
            partly = partly or (name in _REDUCING and output_shape(node) not in ((), None))
            fresh = [following for following, _ in node.next_functions if following not in seen]
            seen.update(fresh)
            todo.extend((following, partly) for following in fresh)


def _all_pairs(node: Any, name: str) -> dict[str, Any] | None:
    """Describe a node at which a prediction and a constant formed all pairs; None at any other."""
    if name not in (*_MEETING, *_EXPANDED) or len(node.next_functions) != 2:
        return None
    sides = node.next_functions
    carrying = [place for place, (following, _) in enumerate(sides) if following is not None]
    if len(carrying) != 1:
        return None
    operand, output = sides[carrying[0]]
    result = output_shape(node)
    if name in _EXPANDED:
        if base_name(operand) != "Expand":
            return None
        result, (operand, output) = output_shape(operand, output), operand.next_functions[0]
    shape = None if operand is None else output_shape(operand, output)
    if result is None or shape is None or not _squared(shape, result) or base_name(operand) == "Unsqueeze":
        return None
    if name in ("Mul", "Div") and _constant_shape(node, carrying[0]) in (result, None):
        return None  # a mask or weight of every pair
    return {"op": node.name(), "result": list(result), "operand": list(shape), "operand_op": operand.name()}


def _squared(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    return len(result) == 2 and result[0] == result[1] > 1 and shape in ((result[0], 1), (1, result[0]), (result[0],))


def _constant_shape(node: Any, carrying: int) -> tuple[int, ...] | None:
    """Return the shape of the other side of a product, which the node keeps for the gradient of this one."""
    try:
        return tuple(getattr(node, "_saved_self" if carrying else "_saved_other").shape)
    except Exception:  # freed, or not kept
        return None
