"""The mean over rows in the place of a sum, in the loss of training."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks

_LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
)


def apply(hooks: Hooks) -> None:
    """Let known losses that are asked for sums give means wherever their input has a gradient; validation stays in the script's unit."""

    def make(original: Any) -> Any:
        def loss(input: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("reduction") == "sum" and isinstance(input, Tensor) and input.requires_grad:
                hooks.note("mean_loss")
                kwargs["reduction"] = "mean"
            return original(input, *args, **kwargs)

        return loss

    for name in _LOSSES:
        hooks.wrap(functional, name, make)
