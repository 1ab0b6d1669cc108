"""Targets of mean 0 and standard deviation 1, as the model sees them; losses and scores stay in the script's unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks


class Rescaled(torch.autograd.Function):
    """Return `mean + spread * output`; the gradient is that of a loss between standardised values."""

    @staticmethod
    def forward(context: Any, output: Tensor, mean: float, spread: float, squared: bool) -> Tensor:
        """Rescale, in the unit of the targets."""
        # d/do (o - (t - m) / s)**2 = 2 (o - ...) is 1 / s of what reaches us from (m + s o - t)**2; of absolute errors all of it.
        context.factor = 1 / spread if squared else 1.0
        return mean + spread * output

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """Give the gradient of the standardised loss."""
        return gradients[0] * context.factor, None, None, None


def apply(hooks: Hooks, mean: float, spread: float, squared: bool) -> None:
    """Let a model answer in standardised units, and rescale its answers to those of the targets.

    Args:
        mean, spread: of the targets.
        squared: whether the loss squares the error.
    """

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = call(*args, **kwargs)
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        hooks.note("scale_targets")
        return Rescaled.apply(output, mean, spread, squared)  # type: ignore[no-untyped-call]

    hooks.around_forward(around)
