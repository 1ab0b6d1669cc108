"""Rows of a data set kept in memory as whole tensors once they were made, and handed out a batch at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils.data import default_collate
from torch.utils.data._utils import fetch

from lossdoctor.trials.hooks import Hooks

MOST_BYTES = 1 << 30


class Rows:
    """Hold the rows of one data set, each part of a row in one tensor.

    Args:
        length: rows of the data set.
    """

    def __init__(self, length: int) -> None:
        self.made = torch.zeros(length, dtype=torch.bool)
        self.parts: list[Tensor] = []
        self.form: Any = None
        self.refused = False

    def keep(self, indices: Tensor, batch: Any) -> None:
        """Keep a batch as the loader collated it; refuse what is not one tensor row per row."""
        parts, form = _pytree.tree_flatten(batch)
        if not all(isinstance(part, Tensor) and part.dim() and len(part) == len(indices) for part in parts):
            self.refused = True
            return
        if not self.parts:
            self.form = form
            if sum(part[0].numel() * part.element_size() for part in parts) * len(self.made) > MOST_BYTES:
                self.refused = True
                return
            self.parts = [torch.empty((len(self.made), *part.shape[1:]), dtype=part.dtype) for part in parts]
        if form != self.form or any(own.shape[1:] != part.shape[1:] for own, part in zip(self.parts, parts, strict=True)):
            self.refused = True
            return
        for own, part in zip(self.parts, parts, strict=True):
            own[indices] = part
        self.made[indices] = True

    def batch(self, indices: Tensor) -> Any:
        """Return a batch of rows that were all made before; None where one was not."""
        if self.refused or not self.parts or not bool(self.made[indices].all()):
            return None
        return _pytree.tree_unflatten([part[indices] for part in self.parts], self.form)


def apply(hooks: Hooks) -> None:
    """Keep what a map-style data set gives, where the loader stacks rows as torch does by default."""
    known: dict[int, tuple[Any, Rows]] = {}  # the data set is held, so that its number is not used again

    def make(original: Any) -> Any:
        def fetched(self: Any, numbers: Any) -> Any:
            if self.collate_fn is not default_collate or not isinstance(numbers, list):
                return original(self, numbers)
            rows = known.setdefault(id(self.dataset), (self.dataset, Rows(len(self.dataset))))[1]
            indices = torch.as_tensor(numbers)
            batch = rows.batch(indices)
            if batch is not None:
                hooks.note("cache_data")
                return batch
            batch = original(self, numbers)
            if not rows.refused:
                rows.keep(indices, batch)
            return batch

        return fetched

    hooks.wrap(fetch._MapDatasetFetcher, "fetch", make)
