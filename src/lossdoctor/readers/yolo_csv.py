"""Ultralytics' and YOLOv5's `results.csv`: three losses and no total; the scores under `metrics/` are of the validation."""

from __future__ import annotations

import numpy as np

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.table import Column, Table


def matches(names: frozenset[str]) -> bool:
    """Tell a header with losses of boxes in both splits, or of classes where there are no boxes."""
    return any(name.startswith("train/") and name.endswith("loss") for name in names) and any(
        name.startswith(("metrics/", "val/")) for name in names
    )


def finish(table: Table) -> Table:
    """Call the scores validation, and take the mean average precision for the one that counts."""
    table.facts["averages"] = "epoch"
    _without_skipped(table)
    scores = [name for name in table.columns if name.startswith("metrics/")]
    chosen = next((name for name in scores if "50-95" in name or "0.5:0.95" in name), None) or next(iter(scores), None)
    for name in scores:
        table.roles[name] = "validation_metric" if name == chosen else "ignore"
    return table


def _without_skipped(table: Table) -> None:
    """Leave out the zeros of epochs whose validation was skipped: all losses and all scores are exactly 0 there."""
    names = [name for name in table.columns if name.startswith(("val/", "metrics/"))]
    if not names:
        return
    held = np.zeros(table.rows, dtype=bool)
    for name in names:
        column = table.columns[name]
        held[column.rows[column.values != 0]] = True
    for name in names:
        column = table.columns[name]
        kept = held[column.rows]
        table.columns[name] = Column(column.rows[kept], column.values[kept])


READERS = (header_reader("YOLO results.csv", matches, finish),)
