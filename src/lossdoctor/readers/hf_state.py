"""The `trainer_state.json` of Hugging Face's Trainer: a document whose `log_history` holds the rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import document, flat, flat_objects
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

FORMAT = "HF trainer_state"
_FACT = re.compile(r'"(max_steps|num_train_epochs|logging_steps|train_batch_size)"\s*:\s*([\d.]+)')


def knows(source: Source) -> float:
    """Be sure of a document with a `log_history` beside a `global_step`."""
    text = source.text[:200_000]
    return 0.95 if '"log_history"' in text and text.lstrip()[:1] == "{" else 0.0


def read(source: Source) -> list[Table]:
    """Read the rows; of a cut or huge document those that can be found."""
    builder = Builder(FORMAT)
    value = document(source)
    if isinstance(value, dict) and isinstance(value.get("log_history"), list):
        add_rows(builder, value["log_history"])
        facts = {name: held for name, held in value.items() if isinstance(held, int | float)}
    else:
        builder.note(f"{source.name} is cut, damaged or very large; the rows that can be read were taken")
        add_rows(builder, flat_objects(source))
        facts = {name: float(held) for name, held in _FACT.findall(source.text)}
    for name, fact in (("max_steps", "planned_steps"), ("num_train_epochs", "planned_epochs"), ("train_batch_size", "batch_size")):
        if facts.get(name):
            builder.fact(fact, facts[name])
    return [builder.table()]


def add_rows(builder: Builder, rows: Iterable[Any]) -> None:
    """Add rows of a log history; the summary at the end (`train_runtime`) is none."""
    for record in rows:
        if not isinstance(record, dict) or "train_runtime" in record or not ({"step", "epoch"} & set(record)):
            continue
        row = flat({name: value for name, value in record.items() if name != "total_flos"})
        if len(row) > 1:
            builder.add(row)


READERS = (Reader(FORMAT, knows, read),)
