"""Auxiliary terms of the loss made small beside the main one."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.record.seams import LOSSES
from lossdoctor.trials.hooks import Hooks

# Nodes of the graph through which a term goes into a sum with nothing but a factor.
_LINEAR = ("Add", "Sub", "Mul", "Div", "Neg", "Sum", "Mean", "Squeeze", "View", "Reshape", "Unsqueeze", "ToCopy")
_MOST_CALLS = 8  # of known losses between two backward calls
_MOST_NODES = 40  # between the loss and its terms; more is no plain sum (starting value)


def apply(hooks: Hooks, factor: float) -> None:
    """Scale all of a loss but the term that the one known loss function in it made.

    Args:
        factor: what the other terms are multiplied by.
    """
    made: deque[Tensor] = deque(maxlen=_MOST_CALLS)  # held: a script drops a term once it is added
    inside = [0]

    def loss(original: Any) -> Any:
        def known(*args: Any, **kwargs: Any) -> Any:
            inside[0] += 1
            try:
                value = original(*args, **kwargs)
            finally:
                inside[0] -= 1
            if not inside[0] and isinstance(value, Tensor) and value.grad_fn is not None:
                made.append(value)
            return value

        return known

    def make(original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Tensor) and tensors.numel() == 1 and grad_tensors in (None, (None,)):
                term = _main_term(tensors, list(made))
                if term is not None:
                    hooks.note("cut_penalty")
                    tensors = factor * tensors + (1 - factor) * term
                made.clear()
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    for name in LOSSES:
        hooks.wrap(functional, name, loss)
    hooks.wrap(torch.autograd, "backward", make)


def _main_term(loss: Tensor, mains: list[Tensor]) -> Tensor | None:
    """Return the main term as it enters a loss; None where there is not one, or where it is all of the loss."""
    found = [main for main in mains if main is not loss and _enters_plainly(loss, main)]
    if len(found) != 1:
        return None
    (factor,) = torch.autograd.grad(loss, found[0], retain_graph=True)
    term = (factor.detach() * found[0]).sum()
    # Nothing else in it: the call itself, scaled.
    return None if torch.isclose(term.detach(), loss.detach().reshape(()), rtol=1e-6, atol=0) else term


def _enters_plainly(loss: Tensor, main: Tensor) -> bool:
    """Tell whether a loss is a sum of which a tensor is one term, with a factor or not."""
    nodes: list[Any] = [loss.grad_fn]
    for _ in range(_MOST_NODES):
        if not nodes:
            return False
        node = nodes.pop(0)
        if node is main.grad_fn:
            return True
        if node is not None and node.name().startswith(_LINEAR):
            nodes += [following for following, _ in node.next_functions]
    return False
