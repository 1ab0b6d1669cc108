"""Ultralytics' and YOLOv5's `results.csv`: three losses and no total; the scores under `metrics/` are of the validation."""

from __future__ import annotations

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.table import Table


def matches(names: frozenset[str]) -> bool:
    """Tell a header with losses of boxes in both splits, or of classes where there are no boxes."""
    return any(name.startswith("train/") and name.endswith("loss") for name in names) and any(
        name.startswith(("metrics/", "val/")) for name in names
    )


def finish(table: Table) -> Table:
    """Call the scores validation, and take the mean average precision for the one that counts."""
    table.facts["averages"] = "epoch"
    scores = [name for name in table.columns if name.startswith("metrics/")]
    chosen = next((name for name in scores if "50-95" in name or "0.5:0.95" in name), None) or next(iter(scores), None)
    for name in scores:
        table.roles[name] = "validation_metric" if name == chosen else "ignore"
    return table


READERS = (header_reader("YOLO results.csv", matches, finish),)
