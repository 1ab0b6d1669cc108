"""The nodes of an autograd graph, and which of them compute nothing."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

# Nodes that only rearrange, copy or cast: what enters them is what leaves them.
PASSING = frozenset(
    (
        "Alias", "AsStrided", "Clone", "Contiguous", "Detach", "Expand", "Flatten", "Index",
        "IndexSelect", "MaskedSelect", "Gather", "Narrow", "Permute", "Repeat", "Reshape", "ReshapeAlias",
        "Select", "Slice", "Split", "SplitWithSizes", "Squeeze", "T", "Take", "ToCopy",
        "Transpose", "Unbind", "Unflatten", "UnsafeSplit", "UnsafeView", "Unsqueeze", "View", "ViewAs",
        "Unfold", "ToDense", "Copy", "CopySlices", "Movedim", "Swapaxes",
    )
)  # fmt: skip


def base_name(node: Any) -> str:
    """Return a node's operation: `Addmm` of `AddmmBackward0`.

    Example:
        >>> import torch
        >>> base_name(torch.ones(1, requires_grad=True).exp().grad_fn)
        'Exp'
    """
    return re.sub(r"(Backward)?\d*$", "", node.name().rpartition("::")[2])


def maker(tensor: Tensor) -> Any:
    """Return the node of the operation that computed a tensor, looking through views, copies and indexing; None for a leaf.

    Example:
        >>> import torch
        >>> probabilities = torch.softmax(torch.ones(2, 3, requires_grad=True), 1)
        >>> maker(probabilities.reshape(-1)[:2]).name()
        'SoftmaxBackward0'
    """
    return through(tensor.grad_fn)


def through(node: Any) -> Any:
    """Return the first node at or behind this one that computes something; None where there is none."""
    for _ in range(50):
        if node is None or base_name(node) not in PASSING or not node.next_functions:
            return node
        node = node.next_functions[0][0]
    return node


def output_shape(node: Any, output: int = 0) -> tuple[int, ...] | None:
    """Return the shape of what a node computed, where this torch tells it.

    Example:
        >>> import torch
        >>> output_shape(torch.ones(2, 3, requires_grad=True).exp().grad_fn)
        (2, 3)
    """
    metadata = getattr(node, "_input_metadata", None)  # of the gradient that enters the node: the shape of its result
    if not metadata or output >= len(metadata):
        return None
    try:
        return tuple(int(length) for length in metadata[output].shape)
    except Exception:  # a nested tensor has no plain shape
        return None
