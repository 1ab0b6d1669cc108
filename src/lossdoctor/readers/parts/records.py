"""Read logs that are JSON: one object a line, a list of objects, an object of lists; also where they are cut or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

# A whole document is parsed at once up to this size; a larger or damaged one is searched for the flat objects in it.
LARGEST_DOCUMENT = 64 << 20
_FLAT = re.compile(r"\{[^{}]*\}")
_DEPTH = 4


def flat(record: Mapping[str, Any], depth: int = _DEPTH) -> dict[str, float]:
    """Keep the numbers of an object; nested ones by the path of their keys.

    Example:
        >>> flat({"loss": "nan", "eval": {"acc": 0.5}, "name": "x"})
        {'loss': nan, 'eval/acc': 0.5}
    """
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and depth:
            found.update({f"{key}/{inner}": held for inner, held in flat(value, depth - 1).items()})
        elif (held := number(value)) is not None:
            found[str(key)] = held
    return found


def parse(text: str) -> Any:
    """Parse JSON; None where it is none, or nests too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def document(source: Source) -> Any:
    """Parse a whole document of bounded size; None where it is too large, cut or damaged."""
    if source.size > LARGEST_DOCUMENT or source.is_folder:
        return None
    text = b"".join(_bounded(source)).decode(source.encoding, errors="replace").lstrip("\ufeff")
    return parse(text)


def _bounded(source: Source) -> Iterator[bytes]:
    taken = 0
    for block in source.blocks():
        taken += len(block)
        if taken > LARGEST_DOCUMENT:
            return
        yield block


def line_objects(source: Source) -> Iterator[dict[str, Any] | None]:
    """Yield the object of each line; None for a line that holds none."""
    for line in source.lines():
        start = line.find("{")
        value = parse(line[start:]) if start >= 0 else None
        yield value if isinstance(value, dict) else None


def flat_objects(source: Source) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document that hold no other object, wherever they stand, in order: for cut and huge documents."""
    import codecs

    decode = codecs.getincrementaldecoder(source.encoding)(errors="replace").decode
    rest = ""
    for block in source.blocks():
        text = rest + decode(block)
        end = 0
        for match in _FLAT.finditer(text):
            end = match.end()
            value = parse(match[0])
            if isinstance(value, dict):
                yield value
        rest = text[max(end, len(text) - (1 << 20)) :]


def add_lists(builder: Builder, columns: Mapping[str, Any]) -> None:
    """Add an object of lists (a history), one row per position."""
    series = {str(name): [number(value) for value in values] for name, values in columns.items() if isinstance(values, list | tuple)}
    for position in range(max((len(values) for values in series.values()), default=0)):
        row = {name: values[position] for name, values in series.items() if position < len(values)}
        builder.add({name: value for name, value in row.items() if value is not None})


Adjust = Callable[[dict[str, Any], Builder], dict[str, Any] | None]


def lines_reader(
    format: str, keys: frozenset[str], adjust: Adjust, forbidden: frozenset[str] = frozenset(), prefixes: tuple[str, ...] = ()
) -> Reader:
    """Make the reader of a format of JSON lines.

    Args:
        format: its name.
        keys: all of them stand in some object among the first lines.
        adjust: turns an object into a row as `names.py` understands it; None leaves it out.
        forbidden: keys of other formats.
        prefixes: for each some key begins so.
    """

    def knows(source: Source) -> float:
        if source.is_folder:
            return 0.0
        lines = [line for line in source.sample_lines[:60] if line.lstrip().startswith("{")]
        found = [set(value) for line in lines if isinstance(value := parse(line), dict)]
        if any(held & forbidden for held in found):
            return 0.0
        fits = any(keys <= held and all(any(name.startswith(prefix) for name in held) for prefix in prefixes) for held in found)
        return 0.9 if fits else 0.0

    def read(source: Source) -> list[Table]:
        builder = Builder(format)
        for record in line_objects(source):
            row = flat(held) if record is not None and (held := adjust(record, builder)) is not None else {}
            if row:
                builder.add(row)
            elif record is None:
                builder.note("lines that are no JSON objects were skipped")
        return [builder.table()]

    return Reader(format, knows, read)
