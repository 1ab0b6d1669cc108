"""Fields of `backward_graph` on what outlives its step: how far a graph reaches back, and which earlier graphs are still alive."""

from __future__ import annotations

import heapq
import weakref
from collections import Counter
from typing import Any

from torch import Tensor

MOST_NODES = 4_000  # of which the walk takes about 3 ms, at the steps at which the graph is looked at
MOST_MARKS = 64  # graphs that are followed at once
_PER_TICK = 4  # marks of forwards without a backward between them, as a validation pass has many
SETTLED = 3  # backward calls after which nothing of a step is still in use: two losses, or a pair of networks, share a forward
LEAST_TOLD, GROWN = 8, 1.5  # graphs that are kept, and times as many as before: worth a row of their own
_KEY = "lossdoctor"
_NEVER = 2**63  # sequence number of leaves is the largest there is


class Mark:
    """Live as long as the node of the graph that it is attached to."""

    __slots__ = ("__weakref__",)


class History:
    """Follow the graphs of a process from one backward call to the next, without holding any of them.

    A mark is put into the `metadata` of the node that made an output or a loss: that dictionary belongs to the node, not to a
    Python object that stands for it, so the mark is gone when the graph is. Nodes are numbered in the order in which they were made:
    the smallest number in a graph tells how far it reaches back.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, str, weakref.ref[Mark]]] = []  # backward calls so far, of what, and the mark
        self._numbers: list[tuple[int, int]] = []  # backward calls so far, and the number of a node that was marked then
        self._starts: list[tuple[int, int]] = []  # backward call, and the number of the node that it was called on
        self._stride, self._next, self._of_tick = 1, 0, 0
        self._told = 0

    def mark(self, result: Any, tick: int, what: str = "output") -> None:
        """Mark the graph of an `output`, a `loss`, or an output of a `validation` that no backward follows; 2 us."""
        if tick < self._next and not (tick == self._next - self._stride and self._of_tick < _PER_TICK):
            return
        node = next((each.grad_fn for each in _tensors(result) if each.grad_fn is not None), None)
        metadata = getattr(node, "metadata", None)
        if not isinstance(metadata, dict):
            return
        self._of_tick = self._of_tick + 1 if tick < self._next else 1
        self._next = tick + self._stride
        mark = Mark()
        metadata[_KEY] = mark
        self._marks.append((tick, what, weakref.ref(mark)))
        self._numbers = [*self._numbers[-MOST_MARKS:], (tick, _number(node))]
        if len(self._marks) > MOST_MARKS:
            self._thin()

    def _thin(self) -> None:
        alive = [each for each in self._marks if each[2]() is not None]
        if len(alive) > MOST_MARKS // 2:
            alive = alive[::2]
            self._stride *= 2
        self._marks = alive

    def began(self, loss: Tensor, tick: int) -> None:
        """Note that backward is called on a loss, after `describe`."""
        if loss.grad_fn is not None:
            self.mark(loss, tick, "loss")
            self._starts = [*self._starts[-MOST_MARKS:], (tick, _number(loss.grad_fn))]

    def describe(self, loss: Tensor, tick: int) -> dict[str, Any]:
        """Return what is known of the graphs before this backward call.

        Returns:
            `nodes` (of this graph, at most 4,000), `reach` (backward calls that lie between the oldest of them and this one),
            `kept` (marked graphs that are alive, of backward calls that ended three or more ago), `marked` (how many were marked by
            then; both of outputs, of losses, or of validation, whichever kept most), `kept_validation`.
        """
        oldest, nodes = walk(loss.grad_fn)
        reach = max((tick - at for at, number in self._starts if number >= oldest), default=0)
        return {"nodes": nodes, "reach": reach, **self.kept(tick)}

    def grown(self, tick: int) -> dict[str, Any] | None:
        """Return `kept`, `marked`, `kept_validation` where clearly more is kept than when last told; 5 us."""
        found = self.kept(tick)
        if found["kept"] < max(LEAST_TOLD, GROWN * self._told):
            return None
        self._told = found["kept"]
        return found

    def kept(self, tick: int) -> dict[str, int]:
        """Count the marked graphs that are alive; see `describe`."""
        settled = [(what, mark() is not None) for at, what, mark in self._marks if at <= tick - SETTLED]
        marked, kept = Counter(what for what, _ in settled), Counter(what for what, alive in settled if alive)
        most = max(marked, key=lambda what: kept[what], default="")
        return {"kept": kept[most], "marked": marked[most], "kept_validation": kept["validation"]}

    def before(self, tick: int) -> int:
        """Return a number that nodes of the last three backward calls are above; -1 where nothing is so old."""
        return max((number for at, number in self._numbers if at <= tick - SETTLED and number < _NEVER), default=-1)


def walk(start: Any, most: int = MOST_NODES) -> tuple[int, int]:
    """Return the number of the oldest node of a graph, and how many nodes there are; the oldest are walked to first.

    Example:
        >>> import torch
        >>> weight = torch.ones(2, requires_grad=True)
        >>> walk(((weight * 3) + 1).sum().grad_fn)[1]
        4
    """
    if start is None:
        return _NEVER, 0
    oldest = _number(start)
    seen, todo, count = {start}, [(oldest, 0, start)], 0
    while todo and len(seen) < most:
        number, _, node = heapq.heappop(todo)
        oldest = min(oldest, number)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                count += 1
                heapq.heappush(todo, (_number(following), count, following))
    return oldest, len(seen)


def _number(node: Any) -> int:
    number = int(node._sequence_nr()) if hasattr(node, "_sequence_nr") else _NEVER
    return number if 0 <= number < _NEVER else _NEVER


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [each for each in values if isinstance(each, Tensor)]
