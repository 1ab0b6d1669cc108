"""Leaky activations in the place of rectifiers, so that a gradient passes through every unit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

SLOPE = 0.01  # that of nn.LeakyReLU


def apply(hooks: Hooks, slope: float = SLOPE) -> None:
    """Let every rectifier pass a share of what is below zero.

    Args:
        slope: that share.
    """

    def make(original: Any) -> Any:
        in_place = original.__name__.endswith("_")

        def relu(input: Any, inplace: bool = False) -> Any:
            if not isinstance(input, Tensor) or not input.is_floating_point():
                return original(input)
            hooks.note("leaky_activations")
            return functional.leaky_relu(input, slope, inplace or in_place)

        return relu

    for owner in (torch, functional, Tensor):
        for name in ("relu", "relu_"):
            hooks.wrap(owner, name, make)
