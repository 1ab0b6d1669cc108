"""Accumulated losses divided by their number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, parts: int) -> None:
    """Divide every loss that backward is called on.

    Args:
        parts: backward calls of one step.
    """

    def make(original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Tensor) and tensors.numel() == 1 and grad_tensors in (None, (None,)) and parts > 1:
                hooks.note("divide_losses")
                tensors = tensors / parts
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    hooks.wrap(torch.autograd, "backward", make)
