"""fastai's CSVLogger: `epoch,train_loss,valid_loss,...,time`; every call of fit writes the header again."""

from __future__ import annotations

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.table import Table


def finish(table: Table) -> Table:
    """Leave out the minutes of each epoch: they are no clock."""
    table.facts["averages"] = "epoch"
    table.columns.pop("time", None)
    return table


READERS = (header_reader("fastai history", lambda names: {"epoch", "train_loss", "valid_loss"} <= names, finish),)
