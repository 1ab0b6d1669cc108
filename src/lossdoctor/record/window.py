"""What happened since the last backward: the forwards, the loss calls, the time between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

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

    Every step makes one: attributes are set one by one, since that is quickest.
    """

    __slots__ = (
        "backward_seconds",
        "calls",
        "forward_seconds",
        "forwards",
        "gap",
        "gap_cpu",
        "idle",
        "loader_seconds",
        "mixed",
        "samples",
        "value",
        "wall",
    )

    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        self.calls: list[tuple[int, Value]] = []  # after how many forwards, and the value
        self.forward_seconds = self.backward_seconds = self.loader_seconds = 0.0
        self.gap = self.idle = self.gap_cpu = NAN
        self.mixed = False
        self.value: Value = NAN
        self.wall = 0.0
        self.samples: Sequence[Any] = ()

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
