"""TensorBoard event files: one, or those of a run in its folder and the folders below (train, validation)."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.crc import crc32c, masked
from lossdoctor.readers.parts.events import EventFile, Scalars
from lossdoctor.readers.parts.names import SPLITS
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Column, Table

FORMAT = "TensorBoard events"
# Scalars that are held of one file (32 bytes each), and the least that a tag keeps when there are more.
MOST_SCALARS, LEAST_SHARE = 4_000_000, 10_000
_FIELDS = ("records", "steps", "walls", "values")


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
    held: dict[str, list[Scalars]] = {}
    total = 0
    for part in events.scalars():
        held.setdefault(prefix + part.tag, []).append(part)
        total += len(part.values)
        if total > MOST_SCALARS:
            total = _thin(held)
    if events.damaged:
        table.notes.append(f"{events.damaged} damaged records were skipped")
    parts = [(number, part) for number, group in enumerate(held.values()) for part in group]
    if not parts:
        return None
    joined = {name: np.concatenate([getattr(part, name) for _, part in parts]) for name in _FIELDS}
    return _Gathered(list(held), np.concatenate([np.full(len(part.values), number) for number, part in parts]), **joined)


def _thin(held: dict[str, list[Scalars]]) -> int:
    """Shorten the tags that hold more than their share, keeping the extremes; return how many scalars are left."""
    share = max(MOST_SCALARS // (2 * len(held)), LEAST_SHARE)
    for tag, parts in held.items():
        if sum(len(part.values) for part in parts) > share:
            whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS}
            order = np.argsort(whole["records"], kind="stable")
            kept = order[Column(np.arange(len(order)), whole["values"][order]).thinned(share).rows]
            held[tag] = [Scalars(tag, *(whole[name][kept] for name in _FIELDS))]
    return sum(len(part.values) for parts in held.values() for part in parts)


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
