"""Nothing frozen: every parameter has a gradient, and an optimiser holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments import hold_all_parameters


def apply(hooks: Hooks) -> None:
    """Let frozen parameters of a model learn, from its next call with gradients on."""

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.is_grad_enabled():
            for parameter in module.parameters():
                if not parameter.requires_grad and parameter.is_floating_point():
                    hooks.note("thaw")
                    parameter.requires_grad_(True)
        return call(*args, **kwargs)

    hold_all_parameters.apply(hooks)
    hooks.around_forward(around)
