"""Losses that are kept or added up, without the graph that made them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.trials.hooks import Hooks, sequence_number

_SUMS = ("__add__", "__radd__", "__iadd__")


def apply(hooks: Hooks) -> None:
    """Cut a loss off its graph once backward has used it, and numbers of earlier steps where they are added to others."""
    done = [0]  # what was made before this number belongs to a backward that is over

    def backward(original: Any) -> Any:
        def called(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensors, *args, **kwargs)
            if not kwargs.get("retain_graph") and not (len(args) > 1 and args[1]):
                done[0] = sequence_number()
                for each in (tensors,) if isinstance(tensors, Tensor) else tensors:
                    _cut(each)
            return result

        return called

    def cut_old(value: Any) -> None:
        if isinstance(value, Tensor) and not value.dim() and value.grad_fn is not None and value.grad_fn._sequence_nr() < done[0]:
            _cut(value)

    def total(original: Any) -> Any:
        def add(self: Any, other: Any) -> Any:
            cut_old(self)
            cut_old(other)
            return original(self, other)

        return add

    def _cut(value: Any) -> None:
        if isinstance(value, Tensor) and value.grad_fn is not None and not value._is_view():
            value.detach_()
            hooks.note("detach_losses")

    hooks.wrap(torch.autograd, "backward", backward)
    for name in _SUMS:
        hooks.wrap(Tensor, name, total)
