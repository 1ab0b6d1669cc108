"""The other sign of the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Call backward on the negated loss."""

    def make(original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Tensor) and tensors.numel() == 1 and grad_tensors in (None, (None,)):
                hooks.note("negate_loss")
                tensors = -tensors
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    hooks.wrap(torch.autograd, "backward", make)
