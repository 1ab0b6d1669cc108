"""Find where on the axis of steps each row of a log stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.table import Column, Table

# More falls than this share are no restarts (starting value).
JUMBLED = 0.25
# Counts beyond this are none: a double holds no neighbours of whole numbers there.
MOST = 2.0**53


@dataclass(frozen=True)
class Axis:
    """Hold the places of the rows that carry the curve.

    Args:
        rows: rows of the log that carry the curve (training loss, else validation loss, else a metric), increasing.
        places: the place of each on the axis, as the log counts it; may go back where runs restart.
        unit: `step`, `epoch` or `row`.
        epochs: the epoch of each, or None where the log does not count them.

    Example:
        >>> from lossdoctor.readers.parts.roles import decide
        >>> table = Table.of({"step": [10, 20], "loss": [2.0, 1.0]})
        >>> find(table, decide(table)).places.tolist()
        [10.0, 20.0]
    """

    rows: Integers
    places: Floats
    unit: str
    epochs: Floats | None = None


def curve_columns(roles: Roles) -> tuple[str, ...]:
    """Return the columns that carry the curve."""
    for role in ("loss", "validation_loss", "validation_metric", "metric"):
        if role in roles.chosen:
            return roles.chosen[role]
    return ()


def find(table: Table, roles: Roles) -> Axis:
    """Find the axis of a log: its steps, else its epochs, else its rows."""
    columns = [table.columns[name] for name in curve_columns(roles) if name in table.columns]
    rows = columns[0].rows if columns else np.empty(0, dtype=np.int64)
    steps, epochs = _values(table, roles.one("step"), rows), _values(table, roles.one("epoch"), rows)
    if steps is not None and epochs is not None:
        steps = _through_epochs(steps, epochs, table.columns.get(".steps_per_epoch"))
    if steps is not None and not _constant(steps) and not _jumbled(steps):
        return Axis(rows, steps, "step", epochs)
    if epochs is not None:
        return Axis(rows, epochs, "epoch", epochs)
    return Axis(rows, np.arange(len(rows), dtype=np.float64), "row", epochs)


def _values(table: Table, name: str | None, rows: Integers) -> Floats | None:
    """Read a counter at the rows; where a row has none, the last one before it, else the next one after."""
    column = table.columns.get(name) if name else None
    if column is None or not len(rows):
        return None
    finite = np.isfinite(column.values) & (np.abs(column.values) < MOST)
    column = Column(column.rows[finite], column.values[finite])
    if not len(column):
        return None
    if name is not None and meaning(name).kind == "step" and np.isin(rows, column.rows).mean() < 0.5:
        return None  # a count within something else: the curve's own rows have none
    values = column.at(rows)
    return np.where(np.isnan(values), column.values[0], values)


def _constant(values: Floats) -> bool:
    return len(values) > 1 and float(np.ptp(values)) == 0.0


def _jumbled(steps: Floats) -> bool:
    """Tell whether a count goes back so often that it is none of this log's order."""
    return len(steps) >= 10 and float((np.diff(steps) < 0).mean()) > JUMBLED


def _through_epochs(steps: Floats, epochs: Floats, told: Column | None) -> Floats:
    """Count on where the log counts steps within each epoch: they fall back exactly where the epoch rises."""
    back, onward = np.diff(steps) < 0, np.diff(epochs) > 0
    falls = int(back.sum())
    # Nine of ten falls at a new epoch: counted within the epoch; fewer: runs restart (starting value).
    if falls < 1 or (back & onward).sum() < 0.9 * falls or falls < 0.5 * onward.sum():
        return steps
    length = float(np.max(told.values)) if told is not None and len(told) else float(np.max(steps)) + 1.0
    return (epochs - np.min(epochs)) * max(length, float(np.max(steps))) + steps
