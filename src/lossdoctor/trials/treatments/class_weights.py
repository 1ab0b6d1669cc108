"""Classes weighted by how rare they are, in the loss of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

_WEIGHT_OF_ONES = 5  # place of `pos_weight` behind input and target, counted from one


def apply(hooks: Hooks, counts: Sequence[int]) -> None:
    """Give losses of classes weights, all rows of one class together as much as those of any other, wherever gradients are on.

    Args:
        counts: rows of each class.
    """
    known = torch.tensor(counts, dtype=torch.float64).clamp_min(1)
    weights = known.sum() / (len(known) * known)

    def make(original: Any) -> Any:
        def loss(input: Any, target: Any, weight: Any = None, *args: Any, **kwargs: Any) -> Any:
            fits = isinstance(input, Tensor) and input.dim() > 1 and input.shape[1] == len(weights)
            if fits and weight is None and torch.is_grad_enabled() and not target.is_floating_point():
                hooks.note("class_weights")
                weight = weights.to(input)
            return original(input, target, weight, *args, **kwargs)

        return loss

    for name in ("cross_entropy", "nll_loss"):
        hooks.wrap(functional, name, make)
    if len(known) == 2:
        _weigh_ones(hooks, float(known[0] / known[1]))


def _weigh_ones(hooks: Hooks, share: float) -> None:
    """Weigh the ones of a loss of single logits by how many zeros there are for each."""

    def make(original: Any) -> Any:
        def loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            weighted = any(isinstance(each, Tensor) for each in (*args, *kwargs.values()))
            if not weighted and len(args) < _WEIGHT_OF_ONES and isinstance(input, Tensor) and torch.is_grad_enabled():
                hooks.note("class_weights")
                kwargs["pos_weight"] = input.new_tensor(share)
            return original(input, target, *args, **kwargs)

        return loss

    hooks.wrap(functional, "binary_cross_entropy_with_logits", make)
