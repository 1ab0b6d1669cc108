"""Training mode in training: dropout draws, and normalisation uses the batch and updates its averages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lossdoctor.trials.hooks import Hooks, in_mode


def apply(hooks: Hooks) -> None:
    """Call models in training mode wherever gradients are on; their flags are as they were after each call."""

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trained = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
        if not trained:
            return call(*args, **kwargs)
        with in_mode(module, True) as changed:
            if changed:
                hooks.note("train_mode")
            return call(*args, **kwargs)

    hooks.around_forward(around)
