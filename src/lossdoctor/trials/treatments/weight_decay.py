"""Weight decay apart from the gradient (AdamW): each step takes a share of every weight away."""

from __future__ import annotations

from typing import Any

import torch

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks, factor: float) -> None:
    """Shrink weights of two or more dimensions before each step.

    Args:
        factor: the weight loses `factor` times the rate at each step.
    """

    def before(optimizer: Any) -> None:
        hooks.note("weight_decay")
        rate = float(optimizer.param_groups[0].get("lr", 0.0))
        with torch.no_grad():
            for parameter in held(optimizer):
                if parameter.dim() >= 2 and parameter.grad is not None:
                    parameter.mul_(1 - rate * factor)

    hooks.before_step(before)
