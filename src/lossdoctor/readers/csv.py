"""Delimited text in general: commas, tabs, semicolons or blanks, with or without a header."""

from __future__ import annotations

from lossdoctor.readers.parts.delimited import layout, read_into, sample_table
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table


def knows(source: Source) -> float:
    """Be fairly sure where the first lines have equal numbers of fields, the later ones numbers."""
    if not source.is_text:
        return 0.0
    found = layout(sample_table(source.text[:65536]))
    if found is None:
        return 0.0
    return 0.45 if found.header and found.delimiter != " " else 0.2


def read(source: Source) -> list[Table]:
    """Read every column."""
    found = layout(sample_table(source.text[:65536]))
    builder = Builder("CSV")
    if found is not None:
        read_into(builder, source, found)
    return [builder.table()]


READERS = (Reader("CSV", knows, read),)
