"""A log as a table of sparse columns: what every reader makes, and what is split and given roles afterwards."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from lossdoctor.core.run import Floats, Integers

MarkKind = Literal["start", "error", "header", "resume"]
# A column longer than this is halved, keeping of every four values the smallest and the largest (not finite ones first):
# two million values of 16 bytes are 32 MB a column, and no rule needs more.
LONGEST = 2_000_000


@dataclass(frozen=True)
class Column:
    """Hold the values of one column: only the rows that have one; nan is a value, not a gap.

    Args:
        rows: shape (n,), the row of each value in the order of the log, increasing.
        values: shape (n,).

    Example:
        >>> Column.of([0.5, 0.4], [3, 7]).rows.tolist()
        [3, 7]
    """

    rows: Integers
    values: Floats

    @classmethod
    def of(cls, values: Sequence[float] | Floats, rows: Sequence[int] | Integers | None = None) -> Column:
        """Build a column from plain lists; rows count from 0 where they are left out."""
        held = np.asarray(values, dtype=np.float64)
        return cls(np.arange(len(held)) if rows is None else np.asarray(rows, dtype=np.int64), held)

    def __len__(self) -> int:
        return len(self.rows)

    def between(self, start: int, stop: int) -> Column:
        """Keep the rows in [start, stop)."""
        low, high = np.searchsorted(self.rows, [start, stop])
        return Column(self.rows[low:high], self.values[low:high])

    def at(self, rows: Integers) -> Floats:
        """Return the latest value at or before each row; nan before the first."""
        if np.array_equal(rows, self.rows):
            return self.values
        where = np.searchsorted(self.rows, rows, side="right") - 1
        taken = self.values[np.maximum(where, 0)] if len(self) else np.full(len(rows), np.nan)
        return np.where(where >= 0, taken, np.nan)

    def thinned(self, longest: int = LONGEST) -> Column:
        """Halve a column that is too long, keeping the extremes and what is not finite."""
        column = self
        while len(column) > longest:
            column = _halved(column)
        return column


def _halved(column: Column) -> Column:
    usable = len(column) // 4 * 4
    values = column.values[:usable].reshape(-1, 4)
    low = np.argmin(np.where(np.isfinite(values), values, -np.inf), axis=1)
    high = np.argmax(np.where(np.isfinite(values), values, np.inf), axis=1)
    first = np.arange(0, usable, 4)
    same = low == high
    pair = np.stack([first + np.minimum(low, high), first + np.where(same, (high + 1) % 4, np.maximum(low, high))], axis=1)
    kept = np.concatenate([np.sort(pair, axis=1).ravel(), np.arange(usable, len(column))])
    return Column(column.rows[kept], column.values[kept])


@dataclass(frozen=True)
class Mark:
    """Hold a place in the log where a run begins, resumes or breaks off.

    Args:
        row: the first row after it.
        kind: `start` (a new process announces itself), `header` (the header line again), `resume` (a checkpoint is loaded),
            `error` (a traceback).
        text: the line that says so.

    Example:
        >>> Mark(0, "start", "Starting training...").kind
        'start'
    """

    row: int
    kind: MarkKind
    text: str = ""


@dataclass
class Table:
    """Hold a log: sparse columns over rows, what it says of the run, and where runs begin.

    Args:
        format: name of the format, for the report.
        columns: by the name that the log uses.
        rows: number of rows.
        facts: what the log says beside the columns: planned steps, number of classes, ...
        marks: places where a run begins or breaks off, in order.
        notes: what was skipped or damaged, one sentence each.
        roles: roles that the format itself fixes, by column name; the rest is found by name (`roles.py`).

    Example:
        >>> Table.of({"loss": [2.0, 1.0]}).rows
        2
    """

    format: str = "table"
    columns: dict[str, Column] = field(default_factory=dict)
    rows: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[float]], **rest: Any) -> Table:
        """Build a table from dense columns."""
        made = {name: Column.of(values) for name, values in columns.items()}
        return cls(columns=made, rows=max((len(column) for column in made.values()), default=0), **rest)

    def between(self, start: int, stop: int) -> Table:
        """Keep the rows in [start, stop); rows count from `start` again."""
        kept = {name: column.between(start, stop) for name, column in self.columns.items()}
        moved = {name: Column(column.rows - start, column.values) for name, column in kept.items() if len(column)}
        marks = [Mark(mark.row - start, mark.kind, mark.text) for mark in self.marks if start <= mark.row < stop]
        return Table(self.format, moved, stop - start, dict(self.facts), marks, list(self.notes), dict(self.roles))


class Builder:
    """Gather rows one by one into a `Table`; memory stays bounded however long the log.

    Example:
        >>> builder = Builder("example")
        >>> builder.add({"loss": 2.0}); builder.add({"loss": 1.0, "lr": 0.1})
        >>> builder.table().columns["lr"].rows.tolist()
        [1]
    """

    # A log with more names than this has free text taken for names; the rest is left out, and said so.
    most_columns = 4000

    def __init__(self, format: str) -> None:
        self.made = Table(format)
        self._open: dict[str, tuple[array[int], array[float]]] = {}
        self._settings: dict[str, float] = {}
        self._pending: dict[str, float] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """Append one row."""
        row = self.made.rows
        if self._pending:
            values = {**values, **self._pending}
            self._pending = {}
        for name, value in values.items():
            held = self._open.get(name) or self._new(name)
            if held is not None:
                held[0].append(row)
                held[1].append(value)
        self.made.rows = row + 1
        if self.made.rows % LONGEST == 0:
            self._close()

    def extend(self, columns: Mapping[str, tuple[Integers, Floats]], rows: int) -> None:
        """Append a block of rows: for each column the rows within the block and the values."""
        self._close()
        for name, (where, values) in columns.items():
            self._append(name, Column(where + self.made.rows, values))
        self.made.rows += rows

    def mark(self, kind: MarkKind, text: str = "") -> None:
        """Note that a run begins, resumes or breaks off before the next row."""
        self._settings.clear()
        if len(self.made.marks) < 10_000:
            self.made.marks.append(Mark(self.made.rows, kind, text[:200]))

    def fact(self, name: str, value: Any) -> None:
        """Note what the log says of all its runs; the first word counts."""
        self.made.facts.setdefault(name, value)

    def setting(self, name: str, value: float | None) -> None:
        """Note what the log says of the run from the next row on: planned steps, classes; kept as a column `.name`."""
        if value is not None and self._settings.get(name) != value:
            self._settings[name] = value
            self._pending[f".{name}"] = value

    def note(self, text: str) -> None:
        """Note what was skipped or damaged; the same note once only."""
        if text not in self.made.notes:
            self.made.notes.append(text)

    def table(self) -> Table:
        """Finish and return the table."""
        self._close()
        return self.made

    def _new(self, name: str) -> tuple[array[int], array[float]] | None:
        if len(self._open) >= self.most_columns:
            self.note(f"more than {self.most_columns} names in the log; the later ones are left out")
            return None
        self._open[name] = (array("q"), array("d"))
        return self._open[name]

    def _close(self) -> None:
        for name, (rows, values) in self._open.items():
            if rows:
                self._append(name, Column(np.array(rows, dtype=np.int64), np.array(values, dtype=np.float64)))
        self._open = {name: (array("q"), array("d")) for name in self._open}

    def _append(self, name: str, part: Column) -> None:
        held = self.made.columns.get(name)
        if held is not None:
            part = Column(np.concatenate([held.rows, part.rows]), np.concatenate([held.values, part.values]))
        self.made.columns[name] = part.thinned()


def from_rows(format: str, rows: Iterable[Mapping[str, float]]) -> Table:
    """Build a table from dense or sparse rows."""
    builder = Builder(format)
    for row in rows:
        builder.add(row)
    return builder.table()
