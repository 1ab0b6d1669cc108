"""Detectron2's `metrics.json`: JSON lines of medians over 20 iterations; scores come in some of them."""

from __future__ import annotations

import re
from typing import Any

from lossdoctor.readers.parts.records import lines_reader
from lossdoctor.readers.parts.table import Builder

_SCORE = re.compile(r"(^|/)(AP|AR|mIoU|fwIoU|PQ|SQ|RQ|sem_seg|panoptic)", re.IGNORECASE)


def adjust(record: dict[str, Any], builder: Builder) -> dict[str, Any]:
    """Call scores validation; `time` is of one iteration."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        if name == "time":
            row["iter_time"] = value
        elif name in ("eta_seconds", "rank_data_time"):
            continue
        else:
            row[f"val/{name}" if _SCORE.search(name) else name] = value
    return row


READERS = (lines_reader("Detectron2 metrics", frozenset({"iteration", "total_loss"}), adjust),)
