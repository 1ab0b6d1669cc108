"""Single precision instead of half: no autocast, no loss scale, no tensors of 16 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.trials.hooks import Hooks

HALF = (torch.float16, torch.bfloat16)


def apply(hooks: Hooks) -> None:
    """Switch `autocast` and `GradScaler` off as they are made, and let what would turn a tensor into half precision make it single."""

    def switched_off(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if self._enabled:
                hooks.note("full_precision")
            self._enabled = False

        return __init__

    def to(original: Any) -> Any:
        def converted(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            found: Tensor = original(self, *map(_single, args), **{name: _single(value) for name, value in kwargs.items()})
            if any(each in HALF for each in (*args, *kwargs.values()) if isinstance(each, torch.dtype)):
                hooks.note("full_precision")
            return found

        return converted

    def method(original: Any) -> Any:
        def converted(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            hooks.note("full_precision")
            return self.float()

        return converted

    for kind in (torch.autocast, torch.amp.GradScaler):
        hooks.wrap(kind, "__init__", switched_off)
    for name in ("to", "type"):
        hooks.wrap(Tensor, name, to)
    for name in ("half", "bfloat16"):
        hooks.wrap(Tensor, name, method)


def _single(value: Any) -> Any:
    return torch.float32 if isinstance(value, torch.dtype) and value in HALF else value
