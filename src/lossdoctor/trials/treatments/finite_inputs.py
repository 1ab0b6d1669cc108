"""Inputs without NaN, infinities and codes for missing values: the mean of the feature stands in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.record.probes.batch import feature_axis
from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, code: float | None = None) -> None:
    """Fill what is no measurement in the floating-point tensors that a model is called with, by the batch's mean of its feature.

    Args:
        code: value that stands for a missing one; None where only what is not finite is filled.
    """

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        bad = ~value.isfinite() if code is None else ~value.isfinite() | (value == code)
        if not bool(bad.any()):
            return value
        hooks.note("finite_inputs")
        return torch.where(bad, _means(value, bad).to(value.dtype), value)

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(*map(change, args), **{name: change(value) for name, value in kwargs.items()})

    hooks.around_forward(around)


def _means(value: Tensor, bad: Tensor) -> Tensor:
    """Return the mean of each feature's good elements, 0 where it has none, in a shape that spreads over the batch."""
    axis = feature_axis(tuple(value.shape))
    axes = [each for each in range(value.dim()) if each != axis] or [0]
    good = (~bad).double()
    return torch.where(bad, 0, value).double().sum(axes, keepdim=True) / good.sum(axes, keepdim=True).clamp_min(1)
