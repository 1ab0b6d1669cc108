"""Validation prepared as training: its inputs with the mean and the spread that training's have."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments.standardise_inputs import Figures


def apply(hooks: Hooks) -> None:
    """Give the floating-point inputs of calls without gradients, feature by feature, the figures of those with gradients."""
    known: weakref.WeakKeyDictionary[nn.Module, dict[Any, tuple[Figures, Figures]]] = weakref.WeakKeyDictionary()

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        figures = known.setdefault(module, {})

        def change(place: Any, value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() < 2:
                return value
            training, validation = figures.setdefault(place, (Figures(), Figures()))
            if torch.is_grad_enabled():
                training.learn(value)
                return value
            if not training.rows:
                return value
            hooks.note("prepare_as_training")
            return training.restored(validation.standardised(value, True))

        changed = tuple(change(place, value) for place, value in enumerate(args))
        return call(*changed, **{name: change(name, value) for name, value in kwargs.items()})

    hooks.around_forward(around)
