"""Prediction and target of one shape in the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "binary_cross_entropy")


def apply(hooks: Hooks) -> None:
    """Give the target the prediction's shape in known losses, and in differences between a prediction and a constant."""

    def known(original: Any) -> Any:
        def loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            return original(input, _like(hooks, target, input), *args, **kwargs)

        return loss

    def difference(original: Any) -> Any:
        def subtract(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(self, Tensor) and isinstance(other, Tensor) and self.requires_grad != other.requires_grad:
                if self.requires_grad:
                    other = _like(hooks, other, self)
                else:
                    self = _like(hooks, self, other)
            return original(self, other, *args, **kwargs)

        return subtract

    for name in _LOSSES:
        hooks.wrap(functional, name, known)
    for owner, names in ((Tensor, ("__sub__", "__rsub__", "sub")), (torch, ("sub", "subtract"))):
        for name in names:
            hooks.wrap(owner, name, difference)


def _like(hooks: Hooks, constant: Any, prediction: Any) -> Any:
    """Return the constant in the shape of the prediction where the two are a column and a row of equally many values."""
    if not isinstance(constant, Tensor) or not isinstance(prediction, Tensor) or constant.shape == prediction.shape:
        return constant
    if constant.numel() != prediction.numel() or constant.numel() < 2 or abs(constant.dim() - prediction.dim()) != 1:
        return constant
    hooks.note("same_shape")
    return constant.reshape(prediction.shape)
