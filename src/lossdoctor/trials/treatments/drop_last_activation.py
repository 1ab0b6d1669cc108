"""No activation behind the last layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

_ACTIVATIONS = ("sigmoid", "tanh", "relu", "relu_", "softmax", "softplus", "hardtanh", "hardsigmoid", "relu6", "exp")
_ENTERED = "_lossdoctor_entered"


def apply(hooks: Hooks) -> None:
    """Return from a model what entered its last activation, in the shape of what it would have returned."""
    for owner in (torch, functional, Tensor):
        for name in _ACTIVATIONS:
            hooks.wrap(owner, name, _remember)

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = call(*args, **kwargs)
        entered = _entered(output)
        if entered is None:
            return output
        hooks.note("drop_last_activation")
        return entered.reshape(output.shape)

    hooks.around_forward(around)


def _remember(original: Any) -> Any:
    in_place = original.__name__.endswith("_")

    def remembering(input: Any, *args: Any, **kwargs: Any) -> Any:
        entered = input.clone() if in_place and isinstance(input, Tensor) else input
        result = original(input, *args, **kwargs)
        if isinstance(result, Tensor) and result is not entered:  # an in-place one that calls another of these has kept it
            setattr(result, _ENTERED, entered)
        return result

    return remembering


def _entered(output: Any) -> Tensor | None:
    """Return what entered the activation that made an output, or that made what it is a view of."""
    if not isinstance(output, Tensor):
        return None
    for each in (output, output._base):
        found = getattr(each, _ENTERED, None)
        if isinstance(found, Tensor) and found.numel() == output.numel():
            return found
    return None
