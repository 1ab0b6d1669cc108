"""The `log.txt` of DETR, DeiT, MAE and their heirs: one object per epoch, keys `train_...` and `test_...`."""

from __future__ import annotations

from typing import Any

from lossdoctor.readers.parts.records import lines_reader
from lossdoctor.readers.parts.table import Builder


def adjust(record: dict[str, Any], builder: Builder) -> dict[str, Any]:
    """Take the first of COCO's twelve scores, the average precision; leave out the copies of the decoder's layers."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, list) and value:
            row[f"{name}_AP"] = value[0]
        elif name.startswith(("test_acc", "train_acc")) or not (name.endswith("_unscaled") or name[-1:].isdigit()):
            row[name] = value
    return row


READERS = (
    lines_reader(
        "DETR log", frozenset({"train_loss"}), adjust, frozenset({"step", "current_steps", "_step", "mode"}), ("test_", "train_lr")
    ),
)
