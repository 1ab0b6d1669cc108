"""Inputs with mean 0 and standard deviation 1 in each feature."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.record.probes.batch import feature_axis
from lossdoctor.trials.hooks import Hooks

ENOUGH_ROWS = 1000  # rows from which the figures are taken; then they stay as they are


class Figures:
    """Hold mean and spread of each feature of one input, over the first rows that were seen."""

    def __init__(self) -> None:
        self.rows = 0
        self.count = 0.0
        self.mean: Any = 0.0
        self.squares: Any = 0.0

    def standardised(self, values: Tensor, learn: bool) -> Tensor:
        """Return standardised values; `learn` from them where more rows are wanted."""
        if learn or not self.rows:
            self.learn(values)
        mean, spread = self._beside(values)
        return (values - mean) / spread

    def restored(self, values: Tensor) -> Tensor:
        """Return standardised values with this mean and this spread."""
        mean, spread = self._beside(values)
        return values * spread + mean

    def learn(self, values: Tensor) -> None:
        """Add rows to the figures while more are wanted (Chan, Golub and LeVeque 1979)."""
        if self.rows >= ENOUGH_ROWS:
            return
        axis = feature_axis(tuple(values.shape))
        axes = [each for each in range(values.dim()) if each != axis]
        given = values.detach().double()
        count = float(given.numel() / max(1, given.mean(axes).numel()))
        mean, squares = given.mean(axes), given.var(axes, unbiased=False) * count
        difference, total = mean - self.mean, self.count + count
        self.squares = self.squares + squares + difference**2 * self.count * count / total
        self.mean = self.mean + difference * count / total
        self.rows, self.count = self.rows + len(values), total

    def _beside(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and spread in a shape that spreads over values; the spread of what does not vary is 1."""
        axis, shape = feature_axis(tuple(values.shape)), [1] * values.dim()
        if axis is not None:
            shape[axis] = values.shape[axis]
        spread = (self.squares / self.count).sqrt()
        spread = torch.where(spread > 1e-12, spread, torch.ones_like(spread))
        return self.mean.to(values).reshape(shape), spread.to(values).reshape(shape)


def apply(hooks: Hooks) -> None:
    """Standardise the floating-point tensors that a model is called with, by the figures of the first thousand rows."""
    known: weakref.WeakKeyDictionary[nn.Module, dict[Any, Figures]] = weakref.WeakKeyDictionary()

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        figures = known.setdefault(module, {})

        def change(place: Any, value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() < 2:
                return value
            hooks.note("standardise_inputs")
            return figures.setdefault(place, Figures()).standardised(value, torch.is_grad_enabled())

        changed = tuple(change(place, value) for place, value in enumerate(args))
        return call(*changed, **{name: change(name, value) for name, value in kwargs.items()})

    hooks.around_forward(around)
