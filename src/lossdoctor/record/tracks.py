"""Keep the steps of one optimiser (or of a loop that steps by hand) until they are flushed."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lossdoctor.record.parameters import Root
from lossdoctor.record.schedule import Schedule
from lossdoctor.record.thinning import pack
from lossdoctor.record.values import NAN, Value, mean, numbers, total

STEP_PROBES = ("gradient", "update", "weights", "zero_rows", "coverage", "memory")
COLUMNS = (
    "step",
    "backward_value",
    "backwards",
    "call_value",
    "lr",
    "not_reset",
    "no_gradient",
    "clip_norm",
    "clip_limit",
    "train_mode",
    "batch_rows",
    "wall",
    "forward_seconds",
    "backward_seconds",
    "step_seconds",
    "loader_seconds",
    "gap_seconds",
    "idle_seconds",
    "gap_cpu_seconds",
)
_DEFERRED = ("backward_value", "call_value", "clip_norm")


class Forward(NamedTuple):
    """Hold what one call of a model was: the model, its mode, the rows of its input."""

    root: Root
    training: bool
    rows: float


class Backward(NamedTuple):
    """Hold what one backward call and the forwards before it were."""

    value: Value
    calls: Sequence[Value]
    forwards: Sequence[Forward]
    forward_seconds: float
    backward_seconds: float
    loader_seconds: float
    gap: float
    idle: float
    gap_cpu: float
    wall: float
    samples: Sequence[Any]


class Resets:
    """Tell whether the gradients of some parameters were reset between backward calls.

    One parameter stands for all: the smallest with a gradient. Its gradient was reset when it is None, another tensor, or
    was written to by someone else than backward, or is all zero (`grad.data.zero_()` leaves no other mark).

    Example:
        >>> import torch
        >>> weight = torch.ones(1, requires_grad=True)
        >>> (2 * weight).sum().backward()
        >>> resets = Resets()
        >>> resets.keep([weight])
        >>> resets.look()
        >>> resets.seen
        False
        >>> weight.grad = None
        >>> resets.look()
        >>> resets.seen
        True
    """

    __slots__ = ("_gradient", "_looks", "_sentinel", "_version", "asked", "seen")

    def __init__(self) -> None:
        self.seen = True
        self.asked = False
        self._sentinel: weakref.ref[Tensor] | None = None
        self._gradient: weakref.ref[Tensor] | None = None
        self._version = 0
        self._looks = 0

    def keep(self, parameters: Sequence[Tensor]) -> None:
        """Remember the gradient as it is now, right after a step."""
        sentinel = self._sentinel() if self._sentinel is not None else None
        if sentinel is None or sentinel.grad is None:
            sentinel = _smallest(parameters)
            self._sentinel = weakref.ref(sentinel) if sentinel is not None else None
        self.seen = self.asked = False
        self._remember(sentinel)

    def look(self) -> None:
        """Look, at the entry of a backward call, whether a reset has happened since."""
        self.asked = True
        sentinel = self._sentinel() if self._sentinel is not None else None
        gradient = sentinel.grad if sentinel is not None else None
        if gradient is None or self._gradient is None or self._gradient() is not gradient or gradient._version != self._version:
            self.seen = True
            return
        self._looks += 1
        # Reading values from a device makes it wait: only now and then.
        if gradient.is_cpu or self._looks % 16 == 1:
            self.seen = not bool(gradient.any())

    def follow(self) -> None:
        """Remember the gradient again after a backward call of the script."""
        self._remember(self._sentinel() if self._sentinel is not None else None)

    def _remember(self, sentinel: Tensor | None) -> None:
        gradient = sentinel.grad if sentinel is not None else None
        if gradient is None:
            self._gradient = None
            return
        self._gradient = weakref.ref(gradient)
        self._version = gradient._version


def _smallest(parameters: Sequence[Tensor]) -> Tensor | None:
    found = [parameter for parameter in parameters if parameter.grad is not None and not parameter.grad.is_sparse]
    found.sort(key=lambda parameter: parameter.numel())
    for parameter in found[:8]:
        if parameter.grad is not None and parameter.grad.any():
            return parameter
    return found[0] if found else None


class Track:
    """Keep the rows of one optimiser, or of backward calls that no optimiser takes.

    Args:
        number: counts the tracks of the process.
        what: `optimizer` or `manual`.
        parameters: what it moves or would move.
        schedule: when its own probes are due.
    """

    def __init__(self, number: int, what: str, parameters: Sequence[Tensor], schedule: Schedule) -> None:
        self.number = number
        self.what = what
        self.parameters = [weakref.ref(parameter) for parameter in parameters]
        self.identities = {id(parameter) for parameter in parameters}
        self.schedule = schedule
        self.resets = Resets()
        self.count = 0
        self.root: Root | None = None
        self.models: list[Root] = []
        self.loss_level = NAN
        self.no_gradient = 1.0
        self.last_backward: object = None
        self.sampler: Any = None
        self.plan: set[str] = set()
        self.planned = -1
        self.headed = False
        self.began = self.stepped = 0.0
        self.names: list[str] = []
        self.roles: list[str] = []
        self.rows: list[tuple[Any, ...]] = []

    def alive(self) -> list[Tensor]:
        """Return the parameters; empty where one of them is gone."""
        found = [reference() for reference in self.parameters]
        return [] if any(parameter is None for parameter in found) else found  # type: ignore[return-value]

    def choose_root(self, forwards: Sequence[Forward]) -> None:
        """Take as the track's model the called module that holds most of its parameters."""
        best = 0
        self.models = list(dict.fromkeys(forward.root for forward in forwards))[:8]
        for forward in forwards:
            shared = len(self.identities & forward.root.names.keys())
            if shared > best:
                best, self.root = shared, forward.root

    def mode_and_rows(self, entries: Sequence[Backward]) -> tuple[float, float]:
        """Return the model's training flag and the rows of its input at the forwards of a step."""
        found: Forward | None = None
        for entry in entries:
            for forward in entry.forwards:
                if forward.root is self.root or found is None:
                    found = forward
        return (1.0 if found.training else 0.0, found.rows) if found is not None else (NAN, NAN)

    def line(self) -> dict[str, Any]:
        """Turn the rows kept so far into one `steps` line, and forget them."""
        rows, self.rows = self.rows, []
        columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        packed = {}
        for name, values in columns.items():
            packed[name] = pack(array("d", numbers(values) if name in _DEFERRED else values))
        return {"kind": "steps", "track": self.number, "columns": packed}


def row(step: int, entries: Sequence[Backward], rest: tuple[float, ...]) -> tuple[Any, ...]:
    """Join the backward calls of a step into one row.

    Args:
        step: the step's number within its track.
        entries: its backward calls; may be empty.
        rest: lr, not_reset, no_gradient, clip_norm, clip_limit, train_mode, batch_rows, wall, step_seconds.
    """
    lr, not_reset, no_gradient, clip_norm, clip_limit, mode, rows, wall, step_seconds = rest
    if len(entries) == 1:
        value, calls, _, forward, backward, loader, gap, idle, gap_cpu, *_ = entries[0]
    else:
        value = total([entry.value for entry in entries]) if entries else NAN
        calls = [call for entry in entries for call in entry.calls]
        forward = sum(entry.forward_seconds for entry in entries)
        backward = sum(entry.backward_seconds for entry in entries)
        loader = sum(entry.loader_seconds for entry in entries)
        gap, idle, gap_cpu = _gaps(entries)
    call = calls[0] if len(calls) == 1 else mean(calls)
    head = (float(step), value, float(len(entries)), call, lr, not_reset, no_gradient, clip_norm, clip_limit, mode, rows, wall)
    return (*head, forward, backward, step_seconds, loader, gap, idle, gap_cpu)


def _gaps(entries: Sequence[Backward]) -> tuple[float, float, float]:
    """Sum the gaps of a step's micro-batches; a part that was not measured makes the sum NaN."""
    if not entries:
        return NAN, NAN, NAN
    return sum(entry.gap for entry in entries), sum(entry.idle for entry in entries), sum(entry.gap_cpu for entry in entries)
