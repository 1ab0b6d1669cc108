"""Keras's CSVLogger: a row per epoch, `val_` in front of held-out figures, NA where there was none; fits may be appended."""

from __future__ import annotations

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.table import Table


def matches(names: frozenset[str]) -> bool:
    """Tell a header with an epoch, a loss without a prefix, and perhaps its `val_` twins."""
    return (
        {"epoch", "loss"} <= names
        and "step" not in names
        and (any(name.startswith("val_") for name in names) or "lr" in names or len(names) <= 4)
    )


def finish(table: Table) -> Table:
    """Leave it as it is."""
    table.facts["averages"] = "epoch"
    return table


READERS = (header_reader("Keras CSV", matches, finish),)
