"""Every parameter that has a gradient, held by an optimiser."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks, held

_LOOKS = 3  # at how many backward calls parameters are looked for that no module holds
_MOST_NODES = 20_000


def apply(hooks: Hooks) -> None:
    """Give parameters that no optimiser holds to the first group of the next one that steps; its schedule is theirs too."""
    models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
    holders: weakref.WeakSet[Any] = weakref.WeakSet()
    reached: dict[int, nn.Parameter] = {}  # those that no module that was called holds: layers in a plain list
    looks = [0]

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        models.add(module)
        return call(*args, **kwargs)

    def make(original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if looks[0] < _LOOKS and isinstance(tensors, Tensor):
                looks[0] += 1
                reached.update({id(each): each for each in _leaves(tensors)})
            return original(tensors, *args, **kwargs)

        return backward

    def before(optimizer: Any) -> None:
        holders.add(optimizer)
        known = {id(parameter) for each in holders for parameter in held(each)}
        every = reached | {id(parameter): parameter for model in models for parameter in model.parameters()}
        missed = [each for number, each in every.items() if number not in known and each.requires_grad and each.grad is not None]
        if missed:
            hooks.note("hold_all_parameters")
            optimizer.param_groups[0]["params"].extend(missed)

    hooks.around_forward(around)
    hooks.wrap(torch.autograd, "backward", make)
    hooks.before_step(before)


def _leaves(loss: Tensor) -> list[nn.Parameter]:
    """Return the parameters that the graph of a loss reaches."""
    found, seen, queue = [], set[Any](), [loss.grad_fn]
    while queue and len(seen) < _MOST_NODES:
        node: Any = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(getattr(node, "variable", None), nn.Parameter):
            found.append(node.variable)
        queue += [following for following, _ in node.next_functions]
    return found
