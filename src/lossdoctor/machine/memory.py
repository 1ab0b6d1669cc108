"""What a training step holds in memory: followed storage by storage, and, of what backward needs, module by module."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from lossdoctor.core.run import Floats

_MARK = "lossdoctor operation "


@dataclass
class Held:
    """Hold what a step held.

    Args:
        timeline: bytes that the step had made and still held after each operation.
        saved: bytes that backward needs, by the innermost module in which they were made.

    Example:
        >>> import torch
        >>> layer = nn.Linear(4, 8)
        >>> held = follow([layer], lambda: layer(torch.ones(2, 4)).relu().sum().backward())
        >>> held.saved["Linear"], held.saved["outside"]  # the inputs, and the outputs of relu
        (32, 64)
    """

    timeline: list[int] = field(default_factory=list)
    saved: Counter[str] = field(default_factory=Counter)

    @property
    def peak(self) -> int:
        """Bytes that were held at once, at most."""
        return max(self.timeline, default=0)


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follow the storages that operations make until they are gone.

    Args:
        known: tensors that were there before; their storages do not count.
    """

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.timeline: list[int] = []
        self.before: list[int] = []  # what was live when each operation began
        self._known: weakref.WeakSet[Any] = weakref.WeakSet(tensor.untyped_storage() for tensor in known)
        self._ends: list[weakref.finalize[Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        before = self.live
        with record_function(f"{_MARK}{len(self.timeline)}"):
            result = func(*args, **(kwargs or {}))
        self.before.append(before)
        for tensor in _tensors(args):  # what comes from outside was there before
            self._known.add(tensor.untyped_storage())
        for tensor in _tensors((result,)):
            self._follow(tensor.untyped_storage())
        self.timeline.append(self.live)
        return result

    def stop(self) -> None:
        """Follow nothing any more."""
        for end in self._ends:
            end.detach()

    def _follow(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self._ends.append(weakref.finalize(storage, self._free, size))

    def _free(self, size: int) -> None:
        self.live -= size


def follow(models: Sequence[nn.Module], step: Callable[[], Any]) -> Held:
    """Do a step and return what it held.

    Args:
        models: that the step calls; their parameters and buffers do not count.
        step: forward and backward; what it makes and keeps, as gradients, counts.
    """
    held = Held()
    there = [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]
    there += [tensor.grad for tensor in there if tensor.grad is not None]
    storages = Storages(there)
    with _saved_by_module(models, there, held.saved), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found, storages:
        step()
    storages.stop()
    within = _within_operations(found)
    held.timeline = [
        max(after, before + within.get(number, 0))
        for number, (before, after) in enumerate(zip(storages.before, storages.timeline, strict=True))
    ]
    return held


def _within_operations(found: profile) -> dict[int, int]:
    """Return the most that each operation held at once while it ran: some convolutions reorder a whole tensor inside.

    Args:
        found: of a step whose operations were marked by number; what the profiler saw allocated lies between their begins and ends.
    """
    results: Any = found.profiler.kineto_results if found.profiler is not None else None
    events: list[Any] = results.events() if results is not None else []
    marks = sorted((each.start_ns(), each.end_ns(), int(each.name()[len(_MARK) :])) for each in events if each.name().startswith(_MARK))
    taken = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    times = [time for time, _ in taken]
    held: dict[int, int] = {}
    for begin, end, number in marks:
        sizes = [size for _, size in taken[bisect_left(times, begin) : bisect_right(times, end)]]
        held[number] = max(accumulate(sizes), default=0)
    return held


@contextmanager
def _saved_by_module(models: Sequence[nn.Module], there: Sequence[Tensor], saved: Counter[str]) -> Iterator[None]:
    """Count what is saved for backward, each storage once, at the innermost module that is being called."""
    inside: list[str] = []
    known: weakref.WeakSet[Any] = weakref.WeakSet(tensor.untyped_storage() for tensor in there)

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage not in known:
            known.add(storage)
            saved[inside[-1] if inside else "outside"] += storage.nbytes()
        return tensor

    handles = []
    for model in models:
        for name, module in model.named_modules():
            label = name or type(model).__name__
            handles.append(module.register_forward_pre_hook(lambda module, args, label=label: inside.append(label)))
            handles.append(module.register_forward_hook(lambda module, args, result: inside.pop() and None, always_call=True))
    try:
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Growth:
    """Hold how what a step holds goes with the rows of its batch: after each operation a line of its own.

    The operation at which most is held is not the same for few rows, where gradients are most, and for many.

    Args:
        fixed: bytes after each operation whatever the rows.
        slope: bytes after each operation for each row.

    Example:
        >>> growth = Growth.through((2, Held([30, 40])), (4, Held([50, 40])))
        >>> growth.peak(2), growth.peak(8), growth.most(100.0)
        (40.0, 90.0, 9)
    """

    fixed: Floats
    slope: Floats

    @classmethod
    def through(cls, one: tuple[int, Held], other: tuple[int, Held]) -> Growth:
        """Return the growth that two steps with other rows show; of the peaks alone where their operations are not the same."""
        alike = len(one[1].timeline) == len(other[1].timeline)
        first, second = (np.array(held.timeline if alike else [held.peak], dtype=np.float64) for _, held in (one, other))
        slope = (second - first) / (other[0] - one[0])
        return cls(first - slope * one[0], slope)

    def peak(self, rows: float) -> float:
        """Return the most that a step with so many rows holds at once, in bytes."""
        return float((self.fixed + self.slope * rows).max(initial=0.0))

    def most(self, limit: float) -> int:
        """Return with how many rows at most a step stays within so many bytes; 0 where with none."""
        if self.peak(0) > limit or not (self.slope > 0).any():
            return 0
        growing = self.slope > 0
        return max(0, int(((limit - self.fixed[growing]) / self.slope[growing]).min()))


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
