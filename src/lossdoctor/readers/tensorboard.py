"""TensorBoard event files: one, or those of a run in its folder and the folders below (train, validation)."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.crc import crc32c, masked
from lossdoctor.readers.parts.events import EventFile
from lossdoctor.readers.parts.names import SPLITS
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import LONGEST, Column, Table

FORMAT = "TensorBoard events"


def is_events(head: bytes) -> bool:
    """Tell whether bytes begin with a record of an event file.

    Example:
        >>> is_events(b"step,loss")
        False
    """
    if len(head) < 17:
        return False
    first = np.frombuffer(head[:12], dtype=np.uint8)
    return int(masked(crc32c(first[None, :8]))[0]) == int.from_bytes(head[8:12], "little") and head[12] in (9, 16, 26, 42)


def knows(source: Source) -> float:
    """Be certain of a file whose first length has its CRC; a folder is one where such a file lies in it."""
    if source.is_folder:
        return 1.0 if event_files(source.path) else 0.0
    return 1.0 if is_events(source.head[:64]) else 0.0


def event_files(folder: Path, beside: bool = True) -> list[Path]:
    """Return the event files of one run: in its folder and, where `beside` says so, in folders below that are named for a split."""
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name.lower() in SPLITS]
    places = [folder, *below] if beside else [folder]
    found = [path for place in places for path in sorted(place.iterdir()) if path.is_file() and _begins(path)]
    return found[:1000]


def _begins(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return is_events(stream.read(64))
    except OSError:
        return False


@dataclass
class _Gathered:
    """Hold the scalars of all files as flat arrays."""

    tags: list[str]
    numbers: Integers
    records: Integers
    steps: Integers
    walls: Floats
    values: Floats


def read(source: Source) -> list[Table]:
    """Read all scalars; events of one step that follow one another make one row."""
    table = Table(FORMAT)
    if source.is_folder:
        parts = [_file(path, _prefix(path, source.path), table) for path in event_files(source.path)]
    else:
        parts = [_mapped(source, table)]
    gathered = _joined([part for part in parts if part is not None])
    if gathered is not None:
        _fill(table, gathered)
    return [table]


def _prefix(path: Path, folder: Path) -> str:
    return f"{path.parent.name}/" if path.parent != folder else ""


def _file(path: Path, prefix: str, table: Table) -> _Gathered | None:
    return _mapped(Source(path), table, prefix)


def _mapped(source: Source, table: Table, prefix: str = "") -> _Gathered | None:
    if not source.on_disk:
        return _scalars(EventFile(b"".join(source.blocks())), prefix, table)
    with source.path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _scalars(EventFile(data), prefix, table)


def _scalars(events: EventFile, prefix: str, table: Table) -> _Gathered | None:
    names: dict[str, int] = {}
    held: dict[int, list[Any]] = {}
    counts: dict[int, int] = {}
    for part in events.scalars():
        number = names.setdefault(prefix + part.tag, len(names))
        held.setdefault(number, []).append(part)
        counts[number] = counts.get(number, 0) + len(part.values)
        if counts[number] > 2 * LONGEST:
            held[number] = [_thinned(held[number])]
            counts[number] = len(held[number][0].values)
    if events.damaged:
        table.notes.append(f"{events.damaged} damaged records were skipped")
    if not names:
        return None
    parts = [(number, part) for number, group in held.items() for part in group]
    return _Gathered(
        list(names),
        np.concatenate([np.full(len(part.values), number) for number, part in parts]),
        np.concatenate([part.records for _, part in parts]),
        np.concatenate([part.steps for _, part in parts]),
        np.concatenate([part.walls for _, part in parts]),
        np.concatenate([part.values for _, part in parts]),
    )


def _thinned(parts: list[Any]) -> Any:
    """Halve the scalars of one tag, keeping the extremes."""
    import dataclasses

    order = np.argsort(np.concatenate([part.records for part in parts]), kind="stable")
    whole = {name: np.concatenate([getattr(part, name) for part in parts])[order] for name in ("records", "steps", "walls", "values")}
    kept = Column(np.arange(len(order)), whole["values"]).thinned().rows
    return dataclasses.replace(parts[0], **{name: values[kept] for name, values in whole.items()})


def _joined(parts: list[_Gathered]) -> _Gathered | None:
    """Put the files of a run one behind the other; where they overlap, by the time of the events."""
    if len(parts) < 2:
        return parts[0] if parts else None
    names = list(dict.fromkeys(name for part in parts for name in part.tags))
    numbers = np.concatenate([np.array([names.index(tag) for tag in part.tags])[part.numbers] for part in parts])
    walls = np.concatenate([part.walls for part in parts])
    records = np.concatenate([part.records + offset for part, offset in zip(parts, _offsets(parts), strict=True)])
    order = np.lexsort((records, walls))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return _Gathered(
        names, numbers, place, np.concatenate([part.steps for part in parts]), walls, np.concatenate([part.values for part in parts])
    )


def _offsets(parts: list[_Gathered]) -> list[int]:
    ends = np.cumsum([0, *(int(part.records.max()) + 1 for part in parts)])
    return [int(end) for end in ends[:-1]]


def _fill(table: Table, gathered: _Gathered) -> None:
    order = np.argsort(gathered.records, kind="stable")
    numbers, steps = gathered.numbers[order], gathered.steps[order]
    rows = _rows(numbers, steps)
    again = np.argsort(rows, kind="stable")
    rows, numbers, steps, order = rows[again], numbers[again], steps[again], order[again]
    values, walls = gathered.values[order], gathered.walls[order]
    firsts = np.concatenate([[True], np.diff(rows) != 0])
    table.rows = int(rows[-1]) + 1
    table.columns["step"] = Column(rows[firsts], steps[firsts].astype(np.float64))
    table.columns["wall_time"] = Column(rows[firsts], walls[firsts])
    for number, name in enumerate(gathered.tags):
        chosen = numbers == number
        column = name if name not in table.columns else f"{name} (tag)"
        table.columns[column] = Column(rows[chosen], values[chosen])


def _rows(numbers: Integers, steps: Integers) -> Integers:
    """Number the rows: events of one step that follow one another share a row unless a tag comes twice."""
    stretch = np.cumsum(np.concatenate([[0], np.diff(steps) != 0]))
    order = np.lexsort((np.arange(len(steps)), numbers, stretch))
    key_changes = np.concatenate([[True], (np.diff(stretch[order]) != 0) | (np.diff(numbers[order]) != 0)])
    begins = np.flatnonzero(key_changes)
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.concatenate([begins, [len(order)]])))
    most = np.zeros(int(stretch[-1]) + 1, dtype=np.int64)
    np.maximum.at(most, stretch, turn)
    first = np.concatenate([[0], np.cumsum(most + 1)[:-1]])
    rows = first[stretch] + turn
    return np.asarray(rows, dtype=np.int64)


READERS = (Reader(FORMAT, knows, read),)
