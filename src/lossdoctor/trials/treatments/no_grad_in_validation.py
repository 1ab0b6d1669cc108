"""No graph in validation."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Call a model without gradients where it is in evaluation mode, if it is trained in training mode."""
    trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if module.training or not torch.is_grad_enabled():
            if torch.is_grad_enabled():
                trained.add(module)
            return call(*args, **kwargs)
        if module not in trained:
            return call(*args, **kwargs)
        hooks.note("no_grad_in_validation")
        with torch.no_grad():
            return call(*args, **kwargs)

    hooks.around_forward(around)
