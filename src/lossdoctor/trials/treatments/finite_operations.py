"""Logarithms, roots and quotients kept away from their poles."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.trials.hooks import Hooks

_LOGARITHMS = ("log", "log2", "log10")
# An optimiser takes these of its own state, which must stay as it is: only what has a gradient is kept away.
_ROOTS = ("sqrt", "rsqrt", "reciprocal")
_QUOTIENTS = ("div", "true_divide", "__truediv__")


def apply(hooks: Hooks) -> None:
    """Let what enters such an operation be no nearer to its pole than the precision of its type, wherever that is not so."""

    def logarithm(original: Any) -> Any:
        def operation(input: Any, *args: Any, **kwargs: Any) -> Any:
            return original(_at_least(hooks, input), *args, **kwargs)

        return operation

    def root(original: Any) -> Any:
        def operation(input: Any, *args: Any, **kwargs: Any) -> Any:
            learns = isinstance(input, Tensor) and input.requires_grad
            return original(_at_least(hooks, input) if learns else input, *args, **kwargs)

        return operation

    def logit(original: Any) -> Any:
        def operation(input: Any, eps: float | None = None, *args: Any, **kwargs: Any) -> Any:
            small = _precision(input)
            if small and eps is None and bool(((input < small) | (input > 1 - small)).any()):
                hooks.note("finite_operations")
                eps = small
            return original(input, eps, *args, **kwargs)

        return operation

    def quotient(original: Any) -> Any:
        def operation(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
            learns = isinstance(other, Tensor) and other.requires_grad
            return original(self, _off_zero(hooks, other) if learns else other, *args, **kwargs)

        return operation

    for owner in (torch, Tensor):
        for name in _LOGARITHMS:
            hooks.wrap(owner, name, logarithm)
        for name in _ROOTS:
            hooks.wrap(owner, name, root)
        for name in _QUOTIENTS:
            hooks.wrap(owner, name, quotient)
        hooks.wrap(owner, "logit", logit)


def _precision(value: Any) -> float:
    """Return the precision of a tensor's type, 1e-7 of single; 0 of what is no tensor of floating-point numbers."""
    return torch.finfo(value.dtype).eps if isinstance(value, Tensor) and value.is_floating_point() else 0.0


def _at_least(hooks: Hooks, value: Any) -> Any:
    small = _precision(value)
    if not small or not bool((value.detach() < small).any()):
        return value
    hooks.note("finite_operations")
    return value.clamp_min(small)


def _off_zero(hooks: Hooks, value: Any) -> Any:
    small = _precision(value)
    if not small or not bool((value.detach() == 0).any()):
        return value
    hooks.note("finite_operations")
    return torch.where(value == 0, torch.full_like(value, small), value)
