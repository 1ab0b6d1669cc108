"""W&B's exports: the CSV of a chart (`run - train/loss` with its least and greatest), of several runs side by side."""

from __future__ import annotations

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table

_AXES = ("Step", "Relative Time (Process)", "Relative Time (Wall)", "Wall Time")
_TWINS = ("__MIN", "__MAX")


def matches(names: frozenset[str]) -> bool:
    """Tell a header with an axis of W&B and columns of `run - metric`."""
    return any(axis in names for axis in _AXES) and any(" - " in name for name in names)


_PLAIN = header_reader("W&B export", matches, lambda table: table)


def read(source: Source) -> list[Table]:
    """Make a table of each run."""
    return [piece for table in _PLAIN.read(source) for piece in _runs(table)]


def _runs(table: Table) -> list[Table]:
    held: dict[str, Table] = {}
    for name, column in table.columns.items():
        run, dash, metric = name.rpartition(" - ")
        if not dash or metric.endswith(_TWINS):
            continue
        made = held.setdefault(run, Table(table.format, rows=table.rows, facts={"name": run}, notes=list(table.notes)))
        made.columns["step" if metric == "_step" else metric] = column
    for made in held.values():
        if "Step" in table.columns:
            made.columns.setdefault("step", table.columns["Step"])
    return list(held.values())


READERS = (Reader(_PLAIN.format, _PLAIN.knows, read),)
