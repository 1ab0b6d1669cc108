"""W&B offline runs: the `.wandb` file, written as a LevelDB log of protobuf records.

Source of the layout: the LevelDB log format (blocks of 32 KB; fragments with CRC, length, type) and wandb_internal.proto.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lossdoctor.readers import text
from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.protobuf import BYTES, VARINT, Damaged, fields
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import flat
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

FORMAT = "W&B run"
_MARK = b":W&B"
_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Numbers of wandb_internal.proto: Record.history and .run; RunRecord.config and .display_name; HistoryRecord.item and .step;
# HistoryItem.key, .nested_key and .value_json
_HISTORY, _OUTPUT, _RUN = 2, 13, 17
_LINE = 3  # of OutputRawRecord
MOST_PRINTED = 200_000
_CONFIG, _NAME = 4, 8
_ITEM, _STEP = 1, 2
_KEY, _NESTED, _JSON = 1, 2, 16
LARGEST_RECORD = 64 << 20


def knows(source: Source) -> float:
    """Be certain of the file's mark; of a folder that holds one such file."""
    if source.is_folder:
        return 1.0 if wandb_file(source.path) else 0.0
    return 1.0 if source.head.startswith(_MARK) else 0.0


def wandb_file(folder: Path) -> Path | None:
    """Return the file of a run's folder; None where there is none, or several, or other files beside it."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return files[0] if len(files) == 1 and Source(files[0]).head.startswith(_MARK) else None


def read(source: Source) -> list[Table]:
    """Read the history; each row has the step that W&B counted."""
    path = wandb_file(source.path) if source.is_folder else None
    return [_table(Source(path) if path else source)]


def _table(source: Source) -> Table:
    builder = Builder(FORMAT)
    printed: list[str] = []
    for record in records(source, builder):
        try:
            _take(record, builder, printed)
        except Damaged:
            builder.note("damaged records were skipped")
    table = builder.table()
    if table.rows or not printed:
        return table
    table = text.FORMAT.table("".join(printed).splitlines())
    table.notes.append("the run logged no figures; what it printed was read")
    return table


def records(source: Source, builder: Builder) -> Iterator[bytes]:
    """Yield the records of a LevelDB log; damaged fragments are skipped."""
    parts: list[bytes] = []
    for kind, data in _fragments(source, builder):
        if kind in (_FULL, _FIRST):
            parts = []
        parts.append(data)
        if sum(map(len, parts)) > LARGEST_RECORD:
            parts = []
        elif kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []


def _fragments(source: Source, builder: Builder) -> Iterator[tuple[int, bytes]]:
    at = _HEADER  # the file begins with a mark of seven bytes
    for block in _blocks(source):
        while at + _HEADER <= len(block):
            length = int.from_bytes(block[at + 4 : at + 6], "little")
            kind = block[at + 6]
            data = block[at + _HEADER : at + _HEADER + length]
            if kind == 0 and length == 0:
                break  # the rest of the block is empty
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(data) < length:
                builder.note("the file is cut or damaged; what can be read was taken")
                break
            crc = zlib.crc32(data, zlib.crc32(bytes([kind])))
            if crc == int.from_bytes(block[at : at + 4], "little"):
                yield kind, data
            else:
                builder.note("damaged records were skipped")
            at += _HEADER + length
        at = 0


def _blocks(source: Source) -> Iterator[bytes]:
    rest = b""
    for raw in source.blocks(_BLOCK * 32):
        data = rest + raw
        whole = len(data) // _BLOCK * _BLOCK
        for at in range(0, whole, _BLOCK):
            yield data[at : at + _BLOCK]
        rest = data[whole:]
    if rest:
        yield rest


def _take(record: bytes, builder: Builder, printed: list[str]) -> None:
    for field, kind, start, end in fields(record):
        if kind != BYTES:
            continue
        if field == _HISTORY:
            _history(record, start, end, builder)
        elif field == _RUN:
            _run(record, start, end, builder)
        elif field == _OUTPUT and len(printed) < MOST_PRINTED:
            lines = [
                record[low:high] for inner, inner_kind, low, high in fields(record, start, end) if inner == _LINE and inner_kind == BYTES
            ]
            printed += [line.decode("utf-8", errors="replace") for line in lines]


def _run(record: bytes, start: int, end: int, builder: Builder) -> None:
    """Take the settings and the name of the run."""
    for field, kind, low, high in fields(record, start, end):
        if field == _CONFIG and kind == BYTES:
            builder.fact("settings", _items(record, low, high))
        elif field == _NAME and kind == BYTES:
            builder.fact("name", record[low:high].decode("utf-8", errors="replace"))


def _history(record: bytes, start: int, end: int, builder: Builder) -> None:
    row = flat(_items(record, start, end))
    for field, kind, low, high in fields(record, start, end):
        if field == _STEP and kind == BYTES:
            for inner, inner_kind, value, _ in fields(record, low, high):
                if inner == 1 and inner_kind == VARINT:
                    row.setdefault("_step", float(value))
    if row:
        builder.add(row)


def _items(record: bytes, start: int, end: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, kind, low, high in fields(record, start, end):
        if field != _ITEM or kind != BYTES:
            continue
        keys, text = [], ""
        for inner, inner_kind, a, b in fields(record, low, high):
            if inner in (_KEY, _NESTED) and inner_kind == BYTES:
                keys.append(record[a:b].decode("utf-8", errors="replace"))
            elif inner == _JSON and inner_kind == BYTES:
                text = record[a:b].decode("utf-8", errors="replace")
        if keys:
            found["/".join(keys)] = _value(text)
    return found


def _value(text: str) -> Any:
    value = number(text.strip('"'))
    if value is not None:
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


READERS = (Reader(FORMAT, knows, read),)
