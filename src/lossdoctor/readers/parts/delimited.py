"""Read delimited text block by block: a fast way for blocks of plain numbers, a patient one for everything else."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.arrow import WORTH_BYTES, installed, parse_block
from lossdoctor.readers.parts.decimals import padded, parse_column
from lossdoctor.readers.parts.numbers import MISSING, number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

BLOCK = 1 << 23
DELIMITERS = (",", "\t", ";", "|")
_NEWLINE = ord("\n")


@dataclass(frozen=True)
class Layout:
    """Hold how a delimited text is laid out.

    Args:
        delimiter: one character; a space stands for any stretch of blanks.
        names: of the columns, stripped; of a text without a header they are `column 1`, ...
        skip: lines before the first row of values.
        header: the header line, to find it again where runs were appended; empty where there is none.

    Example:
        >>> layout("epoch,loss\\n0,1.5\\n").names
        ('epoch', 'loss')
    """

    delimiter: str
    names: tuple[str, ...]
    skip: int
    header: str = ""


def layout(text: str) -> Layout | None:
    """Find the layout of a text by its first lines; None where it is no delimited text."""
    lines = re.split(r"\r*\n|\r+(?!\n)", text)[:-1] if "\n" in text or "\r" in text else [text]
    filled = [(position, line) for position, line in enumerate(lines[:60]) if line.strip() and not line.startswith("#")]
    for delimiter in (*DELIMITERS, " "):
        found = _with(delimiter, filled)
        if found is not None:
            return found
    return None


def _with(delimiter: str, lines: list[tuple[int, str]]) -> Layout | None:
    rows = [(position, fields(line, delimiter)) for position, line in lines[:20]]
    for (position, names), (_, values) in pairwise(rows):
        if len(names) < 2 or len(names) != len(values) or not _header(names) or not _values(values):
            continue
        after = [row for place, row in rows if place > position]
        # blanks stand in every text: only a table of them has equal lines throughout
        share, least = (0.9, 3) if delimiter == " " else (0.5, 2)
        if len(names) >= least and sum(len(row) == len(names) for row in after) >= share * len(after):
            return Layout(delimiter, _unique(names), position + 1, dict(lines)[position].strip())
    if len(rows) > 1 and len(rows[0][1]) > 1 and all(len(row) == len(rows[0][1]) and _values(row) for _, row in rows):
        return Layout(delimiter, tuple(f"column {i + 1}" for i in range(len(rows[0][1]))), rows[0][0])
    if delimiter == "," and len(rows) == 1 and len(rows[0][1]) > 1 and _header(rows[0][1]) and _names_of_figures(rows[0][1]):
        return Layout(delimiter, _unique(rows[0][1]), rows[0][0] + 1, lines[0][1].strip())
    return None


def _names_of_figures(names: list[str]) -> bool:
    return any("loss" in name.lower() or name.lower() in ("epoch", "step") for name in names)


def _unique(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    found: list[str] = []
    for position, name in enumerate(names):
        clean = name.strip().strip("\"'") or f"column {position + 1}"
        seen[clean] = seen.get(clean, 0) + 1
        found.append(clean if seen[clean] == 1 else f"{clean} ({seen[clean]})")
    return tuple(found)


def fields(line: str, delimiter: str) -> list[str]:
    """Split one line.

    Example:
        >>> fields('"Step","run, a"', ",")
        ['Step', 'run, a']
    """
    if delimiter == " ":
        return line.split()
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return line.split(delimiter)


def _header(row: list[str]) -> bool:
    words = sum(bool(re.search(r"[^\W\d_]", field)) and number(field) is None for field in row)
    return words * 2 >= len(row) and all(len(field) < 200 for field in row)


def _values(row: list[str]) -> bool:
    usable = sum(number(field) is not None or field.strip().lower() in MISSING for field in row)
    return usable * 2 >= len(row) and any(number(field) is not None for field in row)


def blocks(source: Source, skip: int) -> Iterator[bytes]:
    """Yield blocks of whole lines in UTF-8, without the first `skip` lines and with plain line ends."""
    rest = b""
    for raw in _utf8(source):
        data = rest + raw
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest = data[-BLOCK:]
            continue
        rest, data = data[cut:], data[:cut]
        while skip and data:
            data = data[data.find(b"\n") + 1 :]
            skip -= 1
        if data:
            yield data
    if rest and not skip:
        yield rest + b"\n"


def _utf8(source: Source) -> Iterator[bytes]:
    import codecs

    decode = codecs.getincrementaldecoder(source.encoding)(errors="replace").decode
    old_ends = b"\n" not in source.head  # carriage returns alone, as old spreadsheets write
    for block in source.blocks(BLOCK):
        if source.encoding != "utf-8":
            block = decode(block).encode()
        yield block.replace(b"\r", b"\n") if old_ends else block


def read_into(builder: Builder, source: Source, found: Layout) -> None:
    """Read all rows of a delimited text into a builder."""
    names = found.names
    parse = _fast
    for block in blocks(source, found.skip):
        if len(block) >= WORTH_BYTES // 2 and installed():  # a long text: its other blocks are as long
            parse = _with_arrow
        plain = parse(block, found.delimiter, len(names))
        if plain is None:
            names = _patient(builder, block, found, names)
            continue
        values, empty = plain
        rows = np.arange(len(values))
        columns = {name: _present(rows, values[:, i], empty[:, i]) for i, name in enumerate(names)}
        builder.extend(columns, len(values))


def _present(rows: Integers, values: Floats, empty: np.ndarray) -> tuple[Integers, Floats]:
    if empty.any():
        return rows[~empty], values[~empty]
    return rows, np.ascontiguousarray(values)


def _with_arrow(block: bytes, delimiter: str, width: int) -> tuple[Floats, np.ndarray] | None:
    """Parse a block as `_fast` does, with pyarrow."""
    if delimiter == " " or delimiter not in ",\t;":
        return None
    if b"\r" in block or b" " in block:
        block = block.translate(None, b"\r ")
    blank = block.startswith(b"\n") or b"\n\n" in block  # pyarrow takes such a line for a row of gaps
    return None if blank else parse_block(block, delimiter, width)


def _fast(block: bytes, delimiter: str, width: int) -> tuple[Floats, np.ndarray] | None:
    """Parse a block of plain numbers; None where it holds anything else, or a line of another width."""
    if delimiter == " " or delimiter not in ",\t;":
        return None
    if b"\r" in block or b" " in block:
        block = block.translate(None, b"\r ")
    data = np.frombuffer(block, dtype=np.uint8)
    if b"\n\n" in block or b'"' in block:
        return None
    ends = np.flatnonzero((data == ord(delimiter)) | (data == _NEWLINE))
    if len(ends) % width or not (data[ends].reshape(-1, width)[:, -1] == _NEWLINE).all() or (data == _NEWLINE).sum() != len(ends) // width:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    empty = (starts == ends).reshape(-1, width)
    values = np.full(empty.shape, np.nan)
    letters = padded(block)
    for column, (begin, end) in enumerate(zip(starts.reshape(-1, width).T, ends.reshape(-1, width).T, strict=True)):
        filled = ~empty[:, column]
        parsed = parse_column(letters, begin[filled], end[filled])
        if parsed is None:
            patient = _floats(block, delimiter, empty.ravel())
            return None if patient is None else (patient.reshape(-1, width), empty)
        values[filled, column] = parsed
    return values, empty


def _floats(block: bytes, delimiter: str, empty: np.ndarray) -> Floats | None:
    text = block.translate(bytes.maketrans(delimiter.encode() + b"\n", b",,"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy warns where it stops at something that is no number
        try:
            if empty.any():
                text = (b"," + text).replace(b",,", b",nan,").replace(b",,", b",nan,")[1:]
            values = np.fromstring(text[:-1], sep=",", dtype=np.float64)
        except (DeprecationWarning, ValueError):
            return None
    return values if len(values) == len(empty) else None


def _patient(builder: Builder, block: bytes, found: Layout, names: tuple[str, ...]) -> tuple[str, ...]:
    """Parse a block line by line; return the names of its columns, which a new header may have changed."""
    for line in block.decode("utf-8", errors="replace").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.strip() == found.header:
            builder.mark("header", line)
            continue
        row = fields(line.replace("\x00", ""), found.delimiter)
        if len(row) > 1 and _header(row) and not _values(row) and len(row) > len(names) // 2:
            names = _unique(row)
            builder.mark("header", line)
            continue
        pairs = {name: value for name, field in zip(names, row, strict=False) if (value := number(field)) is not None}
        if pairs:
            builder.add(pairs)
        elif any(field.strip() for field in row):
            builder.note("some lines hold no numbers; they were skipped")
    return names


def sample_table(text: str) -> str:
    """Return a text with one kind of line end, for `layout`.

    Example:
        >>> sample_table("a,b\\r\\r\\n1,2\\r\\r\\n")
        'a,b\\n1,2\\n'
    """
    return io.StringIO(re.sub(r"\r+\n|\r", "\n", text), newline=None).read()


def header_reader(format: str, matches: Callable[[frozenset[str]], bool], finish: Callable[[Table], Table]) -> Reader:
    """Make the reader of a delimited format that is known by the names in its header.

    Args:
        format: its name.
        matches: tells a header by the set of its names.
        finish: renames columns or fixes their roles.
    """

    def found(source: Source) -> Layout | None:
        if not source.is_text:
            return None
        return layout(sample_table(source.text[:65536]))

    def knows(source: Source) -> float:
        held = found(source)
        return 0.8 if held is not None and held.header and matches(frozenset(held.names)) else 0.0

    def read(source: Source) -> list[Table]:
        builder = Builder(format)
        held = found(source)
        if held is not None:
            read_into(builder, source, held)
        return [finish(builder.table())]

    return Reader(format, knows, read)
