"""One JSON document: a history of lists, a list of records, or whatever holds them."""

from __future__ import annotations

from typing import Any

from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import add_lists, document, flat, flat_objects
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table


def knows(source: Source) -> float:
    """Be fairly sure of a text that begins as JSON does."""
    return 0.4 if source.text.lstrip()[:1] in ("{", "[") else 0.0


def read(source: Source) -> list[Table]:
    """Read the document, or the records that can be found in a damaged one."""
    builder = Builder("JSON")
    value = document(source)
    if value is None:
        _salvage(source, builder)
    else:
        add_any(builder, value)
    return [builder.table()]


def _salvage(source: Source, builder: Builder) -> None:
    """Add the flat records that can be found, one by one; where there are none, the lists of a cut history."""
    builder.note(f"{source.name} is cut, damaged or very large JSON; the records that can be read were taken")
    for record in flat_objects(source):
        if row := flat(record):
            builder.add(row)
    if not builder.made.rows:
        add_any(builder, _lists(source))


def _lists(source: Source) -> list[dict[str, Any]]:
    """Take `"name": [numbers ...` out of a cut history."""
    import re

    text = source.head.decode(source.encoding, errors="replace")
    columns = {
        match[1]: [held for part in match[2].split(",") if (held := number(part.strip())) is not None]
        for match in re.finditer(r'"([^"]{1,80})"\s*:\s*\[([^\[\]{}"]*)', text)
    }
    length = max((len(values) for values in columns.values()), default=0)
    return [{name: values[i] for name, values in columns.items() if i < len(values)} for i in range(length)]


def add_any(builder: Builder, value: Any, depth: int = 4) -> None:
    """Add the records of a document: of the first list of objects, or object of lists, that it holds."""
    if isinstance(value, list):
        for record in value:
            if isinstance(record, dict) and (row := flat(record)):
                builder.add(row)
        if value and all(number(held) is not None for held in value[:100]):
            add_lists(builder, {"loss": value})
        return
    if not isinstance(value, dict):
        return
    lists = {name: held for name, held in value.items() if isinstance(held, list) and held and number(held[0]) is not None}
    if lists:
        add_lists(builder, lists)
        return
    _by_step(builder, value)
    for held in value.values():
        if depth and builder.made.rows == 0:
            add_any(builder, held, depth - 1)


def _by_step(builder: Builder, value: dict[str, Any]) -> None:
    """Read an object whose keys are numbers: `{"0": {...}, "1": {...}}`."""
    numbered = {name: held for name, held in value.items() if number(name) is not None and isinstance(held, dict)}
    if len(numbered) * 2 > len(value):
        for name, held in numbered.items():
            builder.add({"step": number(name) or 0.0, **flat(held)})


READERS = (Reader("JSON", knows, read),)
