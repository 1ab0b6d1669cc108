"""Logits, not probabilities, into losses that want logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

_MADE_FROM = "_lossdoctor_logits"
_TINY = 1e-30  # keeps the logarithm of a probability finite; float32 goes down to 1e-38


def apply(hooks: Hooks) -> None:
    """Undo softmax and sigmoid in front of a loss: by what they were made from where that is known, else by their inverse."""
    for owner in (torch, functional, Tensor):
        for name in ("softmax", "sigmoid"):
            hooks.wrap(owner, name, _remember)
    undo = {
        "cross_entropy": _logits_of_softmax,
        "log_softmax": _logits_of_softmax,
        "binary_cross_entropy_with_logits": _logits_of_sigmoid,
        "nll_loss": _log_probabilities,
    }
    for name, change in undo.items():
        hooks.wrap(functional, name, _given(hooks, change))
    for owner in (torch, Tensor):
        hooks.wrap(owner, "log_softmax", _given(hooks, _logits_of_softmax))


def _remember(original: Any) -> Any:
    def remembering(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(input, *args, **kwargs)
        if isinstance(result, Tensor) and result is not input:
            setattr(result, _MADE_FROM, getattr(input, _MADE_FROM, input))
        return result

    return remembering


def _given(hooks: Hooks, change: Callable[[Tensor], Tensor | None]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def loss(input: Any, *args: Any, **kwargs: Any) -> Any:
            other = change(input) if isinstance(input, Tensor) else None
            if other is None:
                return original(input, *args, **kwargs)
            hooks.note("pass_logits")
            return original(other, *args, **kwargs)

        return loss

    return make


def _logits_of_softmax(input: Tensor) -> Tensor | None:
    found = _before(input)
    if found is None and _sums_to_one(input):
        found = input.clamp_min(_TINY).log()
    return found


def _logits_of_sigmoid(input: Tensor) -> Tensor | None:
    found = _before(input)
    inverse = "Sigmoid" in type(input.grad_fn).__name__
    return torch.logit(input, eps=1e-6) if found is None and inverse else found


def _log_probabilities(input: Tensor) -> Tensor | None:
    """`nll_loss` wants log-probabilities: those of probabilities, and of plain scores."""
    if _sums_to_one(input):
        return input.clamp_min(_TINY).log()
    return None if _sums_to_one(input.exp()) else input.log_softmax(1)


def _before(input: Tensor) -> Tensor | None:
    found: Tensor | None = getattr(input, _MADE_FROM, None)
    return found if found is not None and found.shape == input.shape else None


def _sums_to_one(input: Tensor) -> bool:
    if input.dim() < 2 or not input.is_floating_point():
        return False
    values = input.detach()
    return bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() < 1e-3).all())
