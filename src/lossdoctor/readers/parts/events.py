"""Read the scalars of a TensorBoard event file: many records at once, those of one layout by one array operation.

A file is a row of records: length (8 bytes), its CRC (4), the event (a protobuf message), its CRC (4). Source of the
layout: the TFRecord format; event.proto, summary.proto and tensor.proto of TensorFlow.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.crc import Bytes, crc32c, masked
from lossdoctor.readers.parts.protobuf import BYTES, FIXED32, FIXED64, VARINT, Damaged, fields

CHUNK = 1 << 17
# Longer records are pictures, graphs or sounds; one that holds scalars is far shorter.
LONGEST = 1 << 16
# Array operations that checking the longer records may take in a file; scalars are always checked.
CHECKS = 1 << 21
_RESYNC = 1 << 16
# Tags are written in turn: lengths repeat with a period of at most so many records, and are guessed so many ahead.
LONGEST_TURN, AHEAD = 32, 1 << 14
_FLOAT_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}  # tensor.proto, DataType
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Slot:
    """Hold where a scalar lies in an event: its tag, the offset of its bytes and their type.

    Example:
        >>> Slot("loss", 24, "<f4").kind
        '<f4'
    """

    tag: str
    at: int
    kind: str


@dataclass(frozen=True)
class Scalars:
    """Hold scalars of one tag.

    Args:
        records: shape (n,), number of the record in the file.
        steps, walls, values: shape (n,).
    """

    tag: str
    records: Integers
    steps: Integers
    walls: Floats
    values: Floats


class EventFile:
    """Read the scalars of one file.

    Args:
        data: the file's bytes (mapped or read).

    Attributes:
        damaged: records that were skipped because a check failed.
        records: records seen.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.size = len(data)
        self.damaged = 0
        self.records = 0
        self._checks = CHECKS

    def scalars(self) -> Iterator[Scalars]:
        """Yield the scalars, chunk by chunk."""
        position = 0
        while position + 16 <= self.size:
            offsets, lengths, following = self._frames(position)
            good, broken = self._sound_lengths(offsets, lengths)
            yield from self._chunk(offsets[:good], lengths[:good])
            _forget(self.data)
            if broken is None and following > position and good:
                position = following
                continue
            resumed = self._resync((broken if broken is not None else following) + 1)
            if resumed is None:
                return
            self.damaged += 1
            position = resumed

    def _frames(self, position: int) -> tuple[Integers, Integers, int]:
        """Find the records from a position on, a chunk of them: where their events begin, how long they are, and what follows."""
        found: list[Integers] = []
        begin, count = position, 0
        while count < CHUNK:
            walked = self._walk(position, 4 * LONGEST_TURN)
            ahead = self._ahead(walked, position + sum(walked) + 16 * len(walked))
            lengths = np.concatenate([np.array(walked, dtype=np.int64), ahead])
            if not len(lengths):
                break
            found.append(lengths)
            count += len(lengths)
            position += int(lengths.sum()) + 16 * len(lengths)
        lengths = np.concatenate([*found, np.empty(0, dtype=np.int64)])
        ends = begin + np.cumsum(lengths + 16)
        return ends - lengths - 4, lengths, position

    def _walk(self, position: int, most: int) -> list[int]:
        """Read the lengths of some records, one after the other."""
        data, size, read = self.data, self.size, _LENGTH.unpack_from
        lengths: list[int] = []
        while position + 16 <= size and len(lengths) < most:
            length = read(data, position)[0]
            position += 16 + length
            if position > size:
                break
            lengths.append(length)
        return lengths

    def _ahead(self, recent: list[int], position: int) -> Integers:
        """Guess that the lengths go on in turn as they did, check all guesses at once, and keep those before the first wrong one."""
        turn = next((turn for turn in range(1, LONGEST_TURN + 1) if recent[-turn:] == recent[-2 * turn : -turn]), 0)
        if not turn or len(recent) < 4 * LONGEST_TURN:
            return np.empty(0, dtype=np.int64)
        guessed = np.resize(np.array(recent[-turn:], dtype=np.int64), AHEAD)
        ends = position + np.cumsum(guessed + 16)
        usable = int(np.searchsorted(ends, self.size, side="right"))
        if not usable:
            return np.empty(0, dtype=np.int64)
        guessed, starts = guessed[:usable], ends[:usable] - guessed[:usable] - 16
        told = np.ascontiguousarray(self._gather(starts, 8)).view("<u8")[:, 0]
        wrong = np.flatnonzero(told != guessed.astype(np.uint64))
        return guessed[: int(wrong[0])] if len(wrong) else guessed

    def _sound_lengths(self, offsets: Integers, lengths: Integers) -> tuple[int, int | None]:
        """Check the CRC of the lengths; return how many records are sound, and where the first bad one begins."""
        if not len(offsets):
            return 0, None
        heads = self._gather(offsets - 12, 12)
        wrong = np.flatnonzero(masked(crc32c(heads[:, :8])) != _words(heads[:, 8:]))
        return (len(offsets), None) if not len(wrong) else (int(wrong[0]), int(offsets[wrong[0]] - 12))

    def _resync(self, position: int) -> int | None:
        """Find the next place that begins a record, behind damage or at a cut end."""
        while position + 16 <= self.size:
            window = np.frombuffer(bytes(self.data[position : position + _RESYNC + 12]), dtype=np.uint8)
            if len(window) < 12:
                return None
            heads = np.lib.stride_tricks.sliding_window_view(window, 12)
            hits = np.flatnonzero(masked(crc32c(heads[:, :8])) == _words(heads[:, 8:]))
            for hit in hits.tolist():
                length = _LENGTH.unpack_from(self.data, position + hit)[0]
                if length and position + hit + 16 + length <= self.size:
                    return int(position + hit)
            position += len(heads)
        return None

    def _gather(self, starts: Integers, width: int) -> Bytes:
        """Copy byte strings of one width out of the file."""
        low = int(starts[0])
        view = np.frombuffer(self.data, dtype=np.uint8, count=int(starts[-1]) + width - low, offset=low)
        return np.asarray(np.lib.stride_tricks.sliding_window_view(view, width)[starts - low])

    def _chunk(self, offsets: Integers, lengths: Integers) -> Iterator[Scalars]:
        numbers = self.records + np.arange(len(offsets))
        self.records += len(offsets)
        for length in np.unique(lengths).tolist():
            if length == 0 or length > LONGEST:
                continue
            chosen = lengths == length
            rows = self._gather(offsets[chosen], length + 4)
            sound = self._sound(rows, length)
            self.damaged += int(len(rows) - sound.sum())
            yield from _Layouts(rows[sound][:, :length], numbers[chosen][sound]).scalars()

    def _sound(self, rows: Bytes, length: int) -> Any:
        if length > 1024:
            self._checks -= length
            if self._checks < 0:
                return np.ones(len(rows), dtype=bool)
        return masked(crc32c(rows[:, :length])) == _words(rows[:, length:])


def _forget(data: Any) -> None:
    """Give back the pages of a mapped file that were read, so that a large file does not fill the memory."""
    advise, kind = getattr(data, "madvise", None), getattr(mmap, "MADV_DONTNEED", None)
    if advise is not None and kind is not None:
        advise(kind)


def _words(rows: Bytes) -> Any:
    return np.ascontiguousarray(rows).view("<u4")[:, 0]


class _Layouts:
    """Sort records of one length by their layout, and take the scalars of each layout together."""

    def __init__(self, rows: Bytes, numbers: Integers) -> None:
        self.rows, self.numbers = rows, numbers

    def scalars(self) -> Iterator[Scalars]:
        widths = _step_widths(self.rows)
        for width in np.unique(widths).tolist():
            yield from self._of_width(np.flatnonzero(widths == width), width)

    def _of_width(self, left: Integers, width: int) -> Iterator[Scalars]:
        """Take the records whose step is `width` bytes wide: those that share all bytes but time, step and values are one layout."""
        for turn in range(64):
            if not len(left):
                return
            pattern = _slots(self.rows[left[0]].tobytes())
            inverse, firsts = self._alike(left, width, pattern)
            counts = np.bincount(inverse)
            order = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
            rest: list[Integers] = []
            for group, first in enumerate(firsts.tolist()):
                members = left[order[group]]
                slots = pattern if first == 0 else _slots(self.rows[left[first]].tobytes())
                if len(members) > 1 and turn < 63 and _places(slots) != _places(pattern):
                    rest.append(members)
                    continue
                yield from self._take(members, slots, width)
            left = np.concatenate(rest) if rest else np.empty(0, dtype=np.int64)
            left.sort()

    def _alike(self, chosen: Integers, width: int, slots: list[Slot]) -> tuple[Integers, Integers]:
        """Number the layouts of the chosen records by a hash of the bytes that are not time, step or value."""
        rows = self.rows[chosen]
        free = np.zeros(rows.shape[1], dtype=bool)
        free[1:9] = True
        free[10 : 10 + width] = True
        for slot in slots:
            free[slot.at : slot.at + np.dtype(slot.kind).itemsize] = True
        weights: npt.NDArray[np.uint64] = np.asarray(np.random.default_rng(0).integers(1, 2**63, size=rows.shape[1], dtype=np.uint64))
        sums = np.zeros(len(rows), dtype=np.uint64)
        for column in np.flatnonzero(~free).tolist():
            sums += rows[:, column] * weights[column]
        _, firsts, inverse = np.unique(sums, return_index=True, return_inverse=True)
        return inverse, firsts

    def _take(self, members: Integers, slots: list[Slot], width: int) -> Iterator[Scalars]:
        if not slots:
            return
        rows, numbers = self.rows[members], self.numbers[members]
        walls = _column(rows, 1, "<f8") if rows[0, 0] == 9 else np.full(len(rows), np.nan)
        steps = _steps(rows[:, 10 : 10 + width])
        for slot in slots:
            yield Scalars(slot.tag, numbers, steps, walls, _column(rows, slot.at, slot.kind))


def _column(rows: Bytes, at: int, kind: str) -> Floats:
    width = np.dtype(kind).itemsize
    return np.ascontiguousarray(rows[:, at : at + width]).view(kind)[:, 0].astype(np.float64)


def _places(slots: list[Slot]) -> list[tuple[int, str]]:
    return [(slot.at, slot.kind) for slot in slots]


def _step_widths(rows: Bytes) -> Integers:
    """Return how many bytes the step takes; 0 where the event has none (step 0 is left out)."""
    if rows.shape[1] < 21:
        return np.zeros(len(rows), dtype=np.int64)
    widths = np.argmax(rows[:, 10:21] < 0x80, axis=1).astype(np.int64) + 1
    return np.where((rows[:, 0] == 9) & (rows[:, 9] == 16), widths, 0)


def _steps(parts: Bytes) -> Integers:
    steps = np.zeros(len(parts), dtype=np.int64)
    for place in range(parts.shape[1]):
        steps |= (parts[:, place].astype(np.int64) & 0x7F) << np.int64(min(7 * place, 63))
    return steps


def _slots(event: bytes) -> list[Slot]:
    """Find the scalars of one event, field by field; none where it is damaged or holds none."""
    found: list[Slot] = []
    try:
        for number, kind, start, end in fields(event):
            if number == 5 and kind == BYTES:
                for inner, inner_kind, low, high in fields(event, start, end):
                    if inner == 1 and inner_kind == BYTES:
                        found += _value(event, low, high)
    except Damaged:
        return []
    return found


def _value(event: bytes, start: int, end: int) -> list[Slot]:
    tag, place = "", None
    for number, kind, low, high in fields(event, start, end):
        if number == 1 and kind == BYTES:
            tag = event[low:high].decode("utf-8", errors="replace")
        elif number == 2 and kind == FIXED32:
            place = (low, "<f4")
        elif number == 8 and kind == BYTES:
            place = _tensor(event, low, high) or place
    return [Slot(tag, *place)] if place and tag else []


def _tensor(event: bytes, start: int, end: int) -> tuple[int, str] | None:
    """Find the one number of a tensor; None where it holds several, or text."""
    kind_of, found = "<f4", None
    for number, kind, low, high in fields(event, start, end):
        if number == 1 and kind == VARINT:
            kind_of = _FLOAT_TYPES.get(low, "")
        elif number == 5 and high - low == 4:
            found = (low, "<f4")
        elif number == 6 and kind in (BYTES, FIXED64) and high - low == 8:
            found = (low, "<f8")
        elif number == 4 and kind == BYTES and kind_of and high - low == np.dtype(kind_of).itemsize:
            found = (low, kind_of)
    return found if kind_of else None
