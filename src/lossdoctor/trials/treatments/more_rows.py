"""All rows that the script holds and uses nowhere."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Give the part of a data set that is trained on those of its rows that are in no part of it, at the first epoch of its loader."""
    parts: weakref.WeakSet[Any] = weakref.WeakSet()
    begun: weakref.WeakSet[Any] = weakref.WeakSet()

    def made(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            parts.add(self)

        return __init__

    def iterated(original: Any) -> Any:
        def __iter__(self: Any) -> Any:  # noqa: N807
            part = self.dataset
            if torch.is_grad_enabled() and part in parts and part not in begun:
                begun.add(part)
                unused = _unused(part, [each for each in parts if each.dataset is part.dataset])
                if unused:
                    hooks.note("more_rows")
                    part.indices = [*part.indices, *unused]
            return original(self)

        return __iter__

    hooks.wrap(Subset, "__init__", made)
    hooks.wrap(DataLoader, "__iter__", iterated)


def _unused(part: Any, parts: list[Any]) -> list[int]:
    """Return the rows of a part's data set that no part holds."""
    used = {int(row) for each in parts for row in each.indices}
    return [row for row in range(len(part.dataset)) if row not in used]
