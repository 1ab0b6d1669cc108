"""Classes weighted by how rare they are, in the loss of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lossdoctor.core.fault import Treatment
from lossdoctor.trials.hooks import Hooks

USUAL = Treatment("class_weights", {}, moves="validation", direction="down", safety="changes-results")


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
