"""Every parameter that has a gradient, held by an optimiser."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks) -> None:
    """Give parameters that no optimiser holds to the first group of the next one that steps; its schedule is theirs too."""
    models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
    holders: weakref.WeakSet[Any] = weakref.WeakSet()

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        models.add(module)
        return call(*args, **kwargs)

    def before(optimizer: Any) -> None:
        holders.add(optimizer)
        missed = _missed(models, holders)
        if missed:
            hooks.note("hold_all_parameters")
            optimizer.param_groups[0]["params"].extend(missed)

    hooks.around_forward(around)
    hooks.before_step(before)


def _missed(models: weakref.WeakSet[nn.Module], holders: weakref.WeakSet[Any]) -> list[Tensor]:
    known = {id(parameter) for optimizer in holders for parameter in held(optimizer)}
    every = {id(parameter): parameter for model in models for parameter in model.parameters()}
    return [each for number, each in every.items() if number not in known and each.requires_grad and each.grad is not None]
