"""Slice whole batches of a data set instead of picking and stacking row after row, where both give the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data._utils import collate
from torch.utils.data._utils import fetch as fetching

PROOFS = 3  # batches of a data set that must come out the same before it is believed

Index = Callable[[Sequence[int]], Any]
# How a data set may be asked for several rows at once: by a tensor, by an array, by a list.
_INDICES: tuple[Index, ...] = (torch.as_tensor, np.asarray, list)


def use_whole_batches(tell: Callable[[str, Any], None]) -> None:
    """Have every loader fetch whole batches where that gives the same.

    Args:
        tell: told `lever` and why, once for each data set of which it does not.
    """
    ways: dict[int, Way] = {}
    original = fetching._MapDatasetFetcher.fetch

    def fetch(self: Any, indices: Any) -> Any:
        way = ways.setdefault(id(self.dataset), Way())
        if not isinstance(indices, list | tuple) or way.hopeless:
            return original(self, indices)  # type: ignore[no-untyped-call]
        if way.proven:
            return way.take(self.dataset, indices)
        picked = original(self, indices)  # type: ignore[no-untyped-call]
        with _random_state_kept():
            way.compare(self.dataset, indices, picked)
        if way.hopeless:
            tell("lever", f"{type(self.dataset).__name__} gives other rows when it is asked for many at once")
        return picked

    fetching._MapDatasetFetcher.fetch = fetch  # type: ignore[method-assign]


class Way:
    """Learn how one data set gives whole batches.

    Example:
        >>> way, data = Way(), torch.utils.data.TensorDataset(torch.arange(6))
        >>> for _ in range(PROOFS):
        ...     way.compare(data, [4, 2], [torch.tensor([4, 2])])
        >>> way.proven, way.take(data, [5, 0])
        (True, [tensor([5, 0])])
    """

    def __init__(self) -> None:
        self._left = list(_INDICES)
        self._proofs = 0

    @property
    def proven(self) -> bool:
        """Tell whether the way is believed."""
        return self._proofs >= PROOFS

    @property
    def hopeless(self) -> bool:
        """Tell whether there is none."""
        return not self._left

    def compare(self, dataset: Any, indices: Sequence[int], picked: Any) -> None:
        """Ask a data set for rows at once, and compare with those picked one by one."""
        while self._left:
            try:
                if _same(self.take(dataset, indices), picked):
                    self._proofs += 1
                    return
            except Exception:  # a data set's own code, asked in a way that it was not written for
                pass
            self._left.pop(0)
            self._proofs = 0

    def take(self, dataset: Any, indices: Sequence[int]) -> Any:
        """Return the rows, in the form that a loader gives them."""
        found = collate.default_convert(dataset[self._left[0](indices)])  # type: ignore[no-untyped-call]
        return list(found) if isinstance(found, tuple) and not hasattr(found, "_fields") else found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore random states, so that the comparison draws nothing from the script's."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
