"""One JSON object a line: any tracker of one's own, and every format that no other reader knows better."""

from __future__ import annotations

from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import flat, line_objects, parse
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table


def knows(source: Source) -> float:
    """Be fairly sure where most lines are objects."""
    lines = [line for line in source.sample_lines[:50] if line.strip()]
    objects = sum(line.lstrip().startswith("{") and isinstance(parse(line), dict) for line in lines)
    return 0.5 if objects and objects * 2 >= len(lines) - 1 else 0.0


def read(source: Source) -> list[Table]:
    """Read each object as a row."""
    builder = Builder("JSON lines")
    skipped = 0
    for record in line_objects(source):
        if record is None:
            skipped += 1
        elif row := flat(record):
            builder.add(row)
    if skipped:
        builder.note(f"{skipped} lines are no JSON objects; they were skipped")
    return [builder.table()]


READERS = (Reader("JSON lines", knows, read),)
