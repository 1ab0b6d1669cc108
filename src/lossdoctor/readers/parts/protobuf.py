"""Walk the fields of a protobuf message without its schema."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Damaged(ValueError):
    """Say that the bytes are no protobuf message."""


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message: number, wire type, and where the content lies (for a varint: its value, twice).

    Raises:
        Damaged: where a field runs over the end, or has a wire type that does not exist.

    Example:
        >>> list(fields(bytes([8, 150, 1])))
        [(1, 0, 150, 150)]
    """
    stop = len(data) if end is None else end
    while start < stop:
        key, start = varint(data, start, stop)
        kind = key & 7
        if kind == VARINT:
            value, start = varint(data, start, stop)
            yield key >> 3, kind, value, value
            continue
        if kind == BYTES:
            length, start = varint(data, start, stop)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise Damaged(f"wire type {kind}")
        if start + length > stop:
            raise Damaged("a field runs over the end")
        yield key >> 3, kind, start, start + length
        start += length


def varint(data: bytes, start: int, stop: int) -> tuple[int, int]:
    """Read a number of variable length; return it and where it ends."""
    value = shift = 0
    while start < stop and shift < 70:
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7
    raise Damaged("a number runs over the end")
