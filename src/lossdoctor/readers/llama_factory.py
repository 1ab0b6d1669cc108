"""LLaMA-Factory's `trainer_log.jsonl`: one object per logged step; names changed between versions, unused ones are null."""

from __future__ import annotations

from typing import Any

from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.records import lines_reader
from lossdoctor.readers.parts.table import Builder


def adjust(record: dict[str, Any], builder: Builder) -> dict[str, Any]:
    """Count by `current_steps`; leave out what is progress and not a figure."""
    builder.setting("planned_steps", number(record.get("total_steps")))
    kept = {name: value for name, value in record.items() if name not in ("total_steps", "percentage", "remaining_time", "elapsed_time")}
    step = kept.pop("current_steps", None)
    return {**kept, "step": step, "elapsed_time": record.get("elapsed_time")}


READERS = (lines_reader("LLaMA-Factory log", frozenset({"current_steps", "total_steps"}), adjust),)
