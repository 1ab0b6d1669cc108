"""Evaluation mode in validation: no dropout, and normalisation by the averages of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks, in_mode

DROPOUTS = ("alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")


def apply(hooks: Hooks) -> None:
    """Call models in evaluation mode wherever gradients are off, and draw no dropout there, whoever asks for it."""

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.is_grad_enabled():
            return call(*args, **kwargs)
        with in_mode(module, False) as changed:
            if changed:
                hooks.note("evaluation_mode")
            return call(*args, **kwargs)

    def make(original: Any) -> Any:
        by_default = "alpha" not in original.__name__

        def dropout(input: Any, p: float = 0.5, training: bool = by_default, *args: Any, **kwargs: Any) -> Any:
            if training and p and not torch.is_grad_enabled():
                hooks.note("evaluation_mode")
                training = False
            return original(input, p, training, *args, **kwargs)

        return dropout

    hooks.around_forward(around)
    for name in DROPOUTS:
        hooks.wrap(functional, name, make)
