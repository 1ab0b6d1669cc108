"""The validation passes that a log tells of, as rows beside the curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Integers, Row, Series
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.split import Part
from lossdoctor.readers.parts.table import Column, Table

PERPLEXITY, BITS = frozenset({"ppl", "perplexity"}), frozenset({"bpc", "bpb"})
_ACCURACY = frozenset({"acc", "accuracy", "acc1", "top1", "prec1"})
# Passes that are kept of one run; of more, evenly spaced ones.
MOST_PASSES = 2_000


def total(table: Table, columns: tuple[str, ...], rows: Integers) -> Floats:
    """Add the terms of a loss up at its rows; a perplexity is turned into the loss that it is the exponential of, bits into nats.

    Args:
        table: the log.
        columns: the terms; of several, a row that lacks one counts it as 0.
        rows: shape (n,), increasing.

    Example:
        >>> total(Table.of({"a": [1.0, 2.0], "b": [0.5, 0.5]}), ("a", "b"), np.array([0, 1])).tolist()
        [1.5, 2.5]
    """
    summed = np.zeros(len(rows))
    for name in columns:
        column = table.columns.get(name)
        if column is None or not len(column):
            continue
        if np.array_equal(column.rows, rows):
            values = column.values
        else:
            where = np.minimum(np.searchsorted(column.rows, rows), len(column) - 1)
            values = np.where(column.rows[where] == rows, column.values[where], 0.0 if len(columns) > 1 else np.nan)
        summed = summed + _natural(name, values)
    return summed


def _natural(name: str, values: Floats) -> Floats:
    """Turn perplexities and bits into nats."""
    words = set(meaning(name).base)
    if words & BITS:
        return values * float(np.log(2.0))
    if not words & PERPLEXITY:
        return values
    with np.errstate(all="ignore"):
        return np.asarray(np.log(values), dtype=np.float64)


class Placer:
    """Put values of other columns at the steps of the curve, by the order of the log.

    Args:
        steps: shape (n,), steps of the curve.
        rows: shape (n,), its rows in the log.

    Example:
        >>> Placer(np.array([10, 20]), np.array([0, 2])).of(np.array([1, 3])).tolist()
        [10, 20]
    """

    def __init__(self, steps: Integers, rows: Integers) -> None:
        self.steps, self.rows = steps, rows

    def of(self, rows: Integers) -> Integers:
        """Return for each row the step of the curve that stands at or last before it (the first one where none does)."""
        if np.array_equal(rows, self.rows):
            return self.steps
        where = np.searchsorted(self.rows, rows, side="right") - 1
        return np.asarray(self.steps[np.maximum(where, 0)], dtype=np.int64)

    def series(self, column: Column) -> Series:
        """Return a column as a series; of several values at one step the last."""
        if not len(self.steps):
            return Series(column.rows, column.values)
        steps = self.of(column.rows)
        kept = np.concatenate([steps[1:] != steps[:-1], [True]])
        if kept.all():
            return Series(steps, column.values)
        return Series(steps[kept], column.values[kept])


def validation_rows(part: Part, roles: Roles, place: Placer) -> list[Row]:
    """Build the rows of the signal `validation`.

    Fields: `loss` (None where the pass tells none), `metric` and `higher_is_better`, `correct` (where the metric is an
    accuracy: as a share), `train_loss` (the training data's loss, where the log evaluates it together with the validation).
    """
    table = part.table
    metric = roles.one("validation_metric")
    columns = (roles.chosen.get("validation_loss", ()), (metric,) if metric else (), roles.chosen.get("evaluated_loss", ()))
    rows = _rows(table, columns[0] + columns[1])
    if not len(rows) or not len(place.steps):
        return []
    losses, scores, training = (_values(table, names, rows) for names in columns)
    found = meaning(metric) if metric else None
    share = share_of(found.base if found else (), list(scores.values()))
    common = {"higher_is_better": found.higher if found else None}
    passes: list[Row] = []
    for step, row in zip(_steps(part, roles, place, rows).tolist(), rows.tolist(), strict=True):
        score = scores.get(row)
        fields = {"loss": losses.get(row), "metric": score, "correct": None if score is None or not share else score * share}
        _add(passes, step, {**fields, "train_loss": training.get(row), **common})
    return passes


def _rows(table: Table, names: tuple[str, ...]) -> Integers:
    """Return the rows that tell of a pass; of very many, evenly spaced ones and the last."""
    held = [table.columns[name].rows for name in names if name in table.columns]
    rows = np.unique(np.concatenate(held)) if held else np.empty(0, dtype=np.int64)
    if len(rows) <= MOST_PASSES:
        return rows
    return rows[np.linspace(0, len(rows) - 1, MOST_PASSES).astype(np.int64)]


def _values(table: Table, columns: tuple[str, ...], rows: Integers) -> dict[int, float]:
    """Return the value of each of the rows that has one."""
    held = [table.columns[name] for name in columns if name in table.columns]
    if not held:
        return {}
    rows = rows[np.isin(rows, held[0].rows, assume_unique=True)]
    return dict(zip(rows.tolist(), total(table, columns, rows).tolist(), strict=True))


def _add(passes: list[Row], step: int, fields: dict[str, Any]) -> None:
    """Append a pass, or complete the last one where a log tells its loss and its score on lines of their own."""
    last = passes[-1] if passes else None
    if last is None or last.step != step or any(last[name] is not None and fields[name] is not None for name in ("loss", "metric")):
        passes.append(Row(step, fields))
        return
    merged = {name: fields[name] if last[name] is None else last[name] for name in fields}
    passes[-1] = Row(step, merged)


def _steps(part: Part, roles: Roles, place: Placer, rows: Integers) -> Integers:
    """Return the step of each pass: its own where that lies between those of the curve around it, else that of the curve before."""
    before = place.of(rows)
    column = part.table.columns.get(roles.one("step") or "")
    if part.axis.unit != "step" or column is None or not len(column):
        return before
    where = np.minimum(np.searchsorted(column.rows, rows), len(column) - 1)
    own = np.where(column.rows[where] == rows, column.values[where], np.nan)
    following = np.minimum(np.searchsorted(place.rows, rows, side="right"), len(place.steps) - 1)
    low = np.where(np.searchsorted(place.rows, rows, side="right") > 0, before, -1)
    high = np.where(place.rows[following] > rows, place.steps[following], np.iinfo(np.int64).max)
    fits = np.isfinite(own) & (own >= low) & (own <= high)
    return np.where(fits, np.nan_to_num(own), before).astype(np.int64)


def share_of(base: tuple[str, ...], values: list[float]) -> float:
    """Return the factor that turns an accuracy into a share of 1, or 0 where the figure is none.

    Example:
        >>> share_of(("acc",), [12.5, 61.0]), share_of(("bleu",), [12.5])
        (0.01, 0.0)
    """
    finite = [value for value in values if np.isfinite(value)]
    if not set(base) & _ACCURACY or not finite:
        return 0.0
    return 1.0 if max(finite) <= 1.0 else 0.01 if max(finite) <= 100.0 else 0.0
