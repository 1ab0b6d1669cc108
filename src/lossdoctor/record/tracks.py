"""Keep the steps of one optimiser (or of a loop that steps by hand) until they are flushed."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lossdoctor.record.parameters import Root
from lossdoctor.record.resets import Resets
from lossdoctor.record.schedule import Schedule
from lossdoctor.record.thinning import pack
from lossdoctor.record.values import NAN, Later, Value, mean, numbers, total
from lossdoctor.record.window import Forward, Window

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
_NO_CLIP = (NAN, NAN)
_WIDTH = len(COLUMNS)
_WALL, _GAP = COLUMNS.index("wall"), COLUMNS.index("gap_seconds")
_JUMP = 3.0  # times the running loss: worth a full look at once; a starting value
_BATCH = 32  # steps of which rows are made at once
_CALM = 50  # steps between two such looks


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
        self.began = self.stepped = 0.0
        self.headed = False
        self.lines: list[dict[str, Any]] = []
        self.learn: Callable[[float, float], None] | None = None  # told each gap, and the length of its step
        self.root: Root | None = None
        self.models: list[Root] = []
        self.described: list[dict[str, Any]] = []
        self.flagged: list[dict[str, Any]] = []
        self.no_gradient = 1.0
        self.ask_again = 0  # the step at which it is looked up next
        self.taken: object = None
        self.sampler: Any = None
        self.plan: set[str] = set()
        self.planned = -1
        self._rows = array("d")
        self._later: list[tuple[int, Later]] = []
        self._raw: list[tuple[Sequence[Window], tuple[Any, ...]]] = []
        self.alarm = float("inf")  # a loss at or above it is worth a full look at once
        self._level, self._calm = NAN, 0
        self._wall = 0.0  # end of the last row's step

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return [each["name"] for each in self.described]

    def embeddings(self) -> list[int]:
        """Return the places of the parameters whose gradient reaches few rows."""
        return [place for place, each in enumerate(self.described) if each["role"] == "embedding"]

    @property
    def kept(self) -> int:
        """How many rows wait for the next flush."""
        return len(self._rows) // _WIDTH + len(self._raw)

    def alive(self) -> list[Tensor]:
        """Return the parameters; empty where one of them is gone."""
        found = [reference() for reference in self.parameters]
        return [] if any(parameter is None for parameter in found) else found  # type: ignore[return-value]

    def choose_root(self, forwards: Sequence[Forward]) -> None:
        """Take as the track's model the called module that holds most of its parameters."""
        best = 0
        self.models = list(dict.fromkeys(forward[0] for forward in forwards))[:8]
        for root in self.models:
            shared = len(self.identities & root.names.keys())
            if shared > best:
                best, self.root = shared, root

    def mode_and_rows(self, windows: Sequence[Window]) -> tuple[float, float]:
        """Return the model's training flag and the rows of its input at the forwards of a step."""
        found: Forward | None = None
        for window in windows:
            for forward in window.forwards:
                if found is None or forward[0] is self.root:
                    found = forward
        return (1.0 if found[1] else 0.0, found[2]) if found is not None else (NAN, NAN)

    def add(self, windows: Sequence[Window], rest: tuple[Any, ...]) -> None:
        """Keep a step; its row is made later, many at a time.

        Args:
            windows: the step's backward calls; may be empty.
            rest: lr, not_reset, no_gradient, (clip_norm, clip_limit) or None, wall, step_seconds.
        """
        self._raw.append((windows, rest))
        self.count += 1
        if len(self._raw) >= _BATCH:
            self._digest()

    def add_rows(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Add rows that are made already, of steps with one backward each.

        Args:
            rows: each with its numbers in the order of `COLUMNS`.
        """
        self._digest()
        for row in rows:
            self._rows.extend(row)
            self._follow(row[1])
        self.count += len(rows)
        before = rows[-2][_WALL] if len(rows) > 1 else self._wall
        self._learn(rows[-1][_GAP], rows[-1][_WALL], before)

    def _digest(self) -> None:
        """Make rows of the steps that were kept."""
        step = self.count - len(self._raw)
        for windows, rest in self._raw:
            self._add_row(step, windows, rest)
            step += 1
        self._raw.clear()

    def _add_row(self, step: int, windows: Sequence[Window], rest: tuple[Any, ...]) -> None:
        rate, not_reset, no_gradient, clip, wall, seconds = rest
        gaps: tuple[float, ...]
        times: tuple[float, ...]
        if len(windows) == 1:
            window = windows[0]
            value, calls, gaps = window.value, window.calls, window.gaps()
            call = calls[0][1] if len(calls) == 1 else mean([each for _, each in calls])
            times = (window.forward_seconds, window.backward_seconds, seconds, window.loader_seconds)
        else:
            value = total([window.value for window in windows]) if windows else NAN
            call = mean([each for window in windows for _, each in window.calls])
            times, gaps = _join(windows, seconds)
        norm, limit = clip or _NO_CLIP
        mode, rows = self.mode_and_rows(windows)
        row = (step, value, len(windows), call, rate, not_reset, no_gradient, norm, limit, mode, rows, wall, *times, *gaps)
        try:
            self._rows.extend(row)
        except TypeError:
            self._add_with_later(row)
        self._follow(value)
        self._learn(gaps[0] if windows else NAN, wall, self._wall)

    def _learn(self, gap: float, wall: float, before: float) -> None:
        self._wall = wall
        if self.learn is not None and gap == gap:
            self.learn(gap, wall - before)

    def _add_with_later(self, row: tuple[Any, ...]) -> None:
        """Add a row that holds numbers which still lie on a device."""
        del self._rows[len(self._rows) - len(self._rows) % _WIDTH :]  # what extend took before it failed
        for number in row:
            if isinstance(number, Later):
                self._later.append((len(self._rows), number))
            self._rows.append(NAN if isinstance(number, Later) else number)

    def _follow(self, value: Value) -> None:
        """Follow the loss, to know what a jump is."""
        if isinstance(value, float) and value < self.alarm:
            self._level = value if self._level != self._level else self._level + 0.05 * (value - self._level)
            self.alarm = _JUMP * self._level if self._level > 0 else float("inf")

    def jumped(self) -> bool:
        """Tell whether a loss that reached the alarm is the first in a while."""
        if self.count < self._calm:
            return False
        self._calm = self.count + _CALM
        return True

    def forget(self) -> None:
        """Drop the rows that wait."""
        self.lines.clear()
        self._rows = array("d")
        self._later = []
        self._raw.clear()

    def line(self) -> dict[str, Any]:
        """Turn the rows kept so far into one `steps` line, and forget them."""
        self._digest()
        for (place, _), number in zip(self._later, numbers([later for _, later in self._later]), strict=True):
            self._rows[place] = number
        columns = {name: self._rows[place::_WIDTH] for place, name in enumerate(COLUMNS)}
        packed = {name: pack(values) for name, values in columns.items() if any(value == value for value in values)}
        self.forget()
        return {"kind": "steps", "track": self.number, "columns": packed}


def _join(windows: Sequence[Window], step_seconds: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Sum the times of a step's micro-batches; a part that was not measured makes the sum NaN."""
    if not windows:
        return (0.0, 0.0, step_seconds, 0.0), (NAN, NAN, NAN)
    forward = sum(window.forward_seconds for window in windows)
    backward = sum(window.backward_seconds for window in windows)
    loader = sum(window.loader_seconds for window in windows)
    return (forward, backward, step_seconds, loader), _join_gaps([window.gaps() for window in windows])


def _join_gaps(gaps: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Sum gaps; where the clocks were read in some of them, idle and CPU time of all are estimated from those."""
    whole = sum(gap for gap, _, _ in gaps)
    read = [each for each in gaps if each[1] == each[1]]
    length = sum(gap for gap, _, _ in read)
    if not length:
        return whole, NAN, NAN
    share = whole / length
    return whole, share * sum(idle for _, idle, _ in read), share * sum(cpu for _, _, cpu in read)
