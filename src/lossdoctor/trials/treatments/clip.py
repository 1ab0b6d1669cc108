"""Gradients clipped to a norm before each step."""

from __future__ import annotations

from typing import Any

import torch

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks, norm: float) -> None:
    """Clip the norm of all gradients that an optimiser holds (not those of a closure).

    Args:
        norm: the largest that is left as it is.
    """

    def before(optimizer: Any) -> None:
        parameters = [parameter for parameter in held(optimizer) if parameter.grad is not None]
        if parameters and not torch.nn.utils.clip_grad_norm_(parameters, norm) <= norm:
            hooks.note("clip")

    hooks.before_step(before)
