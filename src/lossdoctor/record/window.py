"""What happened since the last backward: the forwards, the loss calls, the time between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from lossdoctor.record.values import NAN, Value

if TYPE_CHECKING:
    from lossdoctor.record.parameters import Root

Kind = Literal["training", "validation", "foreign"]


class Call:
    """Hold an outermost call of a model while it lasts; one for each model, used again.

    Args:
        root: the model.
    """

    __slots__ = ("began", "grad", "kind", "root", "rows", "training")

    def __init__(self, root: Root) -> None:
        self.root = root
        self.kind: Kind = "training"
        self.began = 0.0
        self.grad = True
        self.training = True
        self.rows = NAN


Forward = tuple["Root", bool, float]  # the model, its mode, the rows of its input


class Window:
    """Gather one backward call and what came before it.

    Every step makes one, between a script's own operations, when nothing of ours is in the processor's caches: only what
    cannot be known later is kept here, and figures are made of it many steps at a time (`tracks.py`).
    """

    value: Value = NAN
    wall = forward_seconds = backward_seconds = loader_seconds = 0.0
    opened = began = excluded = 0.0  # end of the last step, first forward, validation passes between
    gap_cpu = queued = NAN
    follows = False  # a further backward of the same forwards
    mixed = False
    samples: Sequence[Any] = ()

    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        self.calls: list[tuple[int, Value]] = []  # after how many forwards, and the value

    def gaps(self) -> tuple[float, float, float]:
        """Return the gap before the first forward, the part in which the thread idled, and its CPU time; NaN where unknown."""
        if self.follows:
            return 0.0, 0.0, 0.0
        if not self.opened or not self.began:
            return NAN, NAN, NAN
        gap = max(0.0, self.began - self.opened - self.excluded)
        if self.excluded or self.gap_cpu != self.gap_cpu:
            return gap, NAN, NAN
        return gap, max(0.0, gap - self.gap_cpu - self.queued), self.gap_cpu

    def split(self, start: int) -> tuple[list[Forward], list[Value]]:
        """Cut off the first forwards, and the loss calls made on them; return both."""
        forwards, calls = self.forwards[:start], [value for index, value in self.calls if index <= start]
        self.forwards = self.forwards[start:]
        self.calls = [(index - start, value) for index, value in self.calls if index > start]
        return forwards, calls

    def last_of_one_mode(self) -> int:
        """Return where the last stretch of forwards in the same mode begins."""
        start, mode = len(self.forwards), self.forwards[-1][1]
        while start and self.forwards[start - 1][1] == mode:
            start -= 1
        return start


def rows_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """Return the first dimension of the first tensor that a model is given; NaN where there is none.

    Example:
        >>> import torch
        >>> rows_of((torch.zeros(8, 3),), {})
        8
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value.size(0) if value.dim() else 1.0
    return NAN
