"""From the rows of one run in a log to a `Training`: the same signals as a watched run has, as far as a log goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Integers, Row, Series, Training
from lossdoctor.readers.parts.axis import curve_columns
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.split import Part
from lossdoctor.readers.parts.table import Column, Table

# Signals that are taken over as they are, by role.
_SIGNALS = {
    "lr": "lr",
    "grad_norm": "grad_norm",
    "time": "wall",
    "seconds": "log_seconds",
    "wait": "log_wait",
    "throughput": "throughput",
    "loss_scale": "loss_scale",
    "skipped": "skipped_steps",
    "metric": "train_metric",
    "validation_metric": "validation_metric",
}
_PERPLEXITY = frozenset({"ppl", "perplexity"})


def assemble(part: Part, roles: Roles, index: int, of: int) -> Training:
    """Build the training of one run of a log."""
    axis = part.axis
    steps, rows = _steps(part)
    training = Training(index=index, facts=dict(part.table.facts))
    columns = curve_columns(roles)
    values = _sum(part.table, columns, rows)
    role = next((name for name, held in roles.chosen.items() if held == columns), "loss")
    if "loss" in roles.chosen or role == "validation_loss":
        training.signals["loss"] = Series(steps, values)
    if axis.epochs is not None:
        kept = np.isin(axis.rows, rows)
        training.signals["epoch"] = Series(steps, axis.epochs[kept])
    place = _Placer(steps, rows)
    for name, signal in _SIGNALS.items():
        column = part.table.columns.get(roles.one(name) or "")
        if column is not None and len(column):
            training.signals[signal] = place.series(column)
    held_out = _validation(part, roles, place)
    if held_out:
        training.rows["validation"] = held_out
    training.facts.update(_facts(part, roles, steps, role, of))
    return training


def _steps(part: Part) -> tuple[Integers, Integers]:
    """Return the steps of the curve and their rows: the log's own count where it is one of whole numbers that rise."""
    places, rows = part.axis.places, part.axis.rows
    if part.axis.unit == "step":
        kept = np.concatenate([np.diff(places) != 0, [True]]) if len(places) else np.zeros(0, dtype=bool)
        places, rows = places[kept], rows[kept]
    whole = bool(np.all(places == np.floor(places))) and bool(np.all(np.diff(places) > 0)) and bool(np.all(np.abs(places) < 2**53))
    return (places.astype(np.int64) if whole else np.arange(len(places)), rows)


def _sum(table: Table, columns: tuple[str, ...], rows: Integers) -> Floats:
    """Add the terms of a loss up at its rows; a perplexity is turned into the loss that it is the exponential of."""
    total = np.zeros(len(rows))
    for name in columns:
        column = table.columns.get(name)
        if column is None:
            continue
        where = np.minimum(np.searchsorted(column.rows, rows), len(column) - 1)
        values = np.where(column.rows[where] == rows, column.values[where], 0.0 if len(columns) > 1 else np.nan)
        total = total + _natural(name, values)
    return total


def _natural(name: str, values: Floats) -> Floats:
    if not set(meaning(name).base) & _PERPLEXITY:
        return values
    with np.errstate(all="ignore"):
        return np.asarray(np.log(values), dtype=np.float64)


class _Placer:
    """Put values of other columns at the steps of the curve, by the order of the log."""

    def __init__(self, steps: Integers, rows: Integers) -> None:
        self.steps, self.rows = steps, rows

    def of(self, rows: Integers) -> Integers:
        """Return for each row the step of the curve that stands at or last before it (the first one where none does)."""
        where = np.searchsorted(self.rows, rows, side="right") - 1
        return self.steps[np.maximum(where, 0)]

    def series(self, column: Column) -> Series:
        """Return a column as a series; of several values at one step the last."""
        if not len(self.steps):
            return Series(column.rows, column.values)
        steps = self.of(column.rows)
        kept = np.concatenate([np.diff(steps) != 0, [True]])
        return Series(steps[kept], column.values[kept])


def _validation(part: Part, roles: Roles, place: _Placer) -> list[Row]:
    table = part.table
    losses, metric = roles.chosen.get("validation_loss", ()), roles.one("validation_metric")
    columns = [table.columns[name] for name in (*losses, *((metric,) if metric else ())) if name in table.columns]
    if not columns or not len(place.steps):
        return []
    rows = np.unique(np.concatenate([column.rows for column in columns]))[-200_000:]
    loss = _comparable(table, losses, rows)
    found = meaning(metric) if metric else None
    figures = table.columns[metric] if metric and metric in table.columns else Column.of([])
    scores = dict(zip(figures.rows.tolist(), figures.values.tolist(), strict=True))
    share = _as_share(found.base if found else (), figures.values)
    steps = place.of(rows)
    return [
        _row(int(step), int(row), value, scores, found.higher if found else None, share)
        for step, row, value in zip(steps, rows, loss, strict=True)
    ]


def _row(step: int, row: int, loss: float, scores: dict[int, float], higher: bool | None, share: float) -> Row:
    fields: dict[str, Any] = {"loss": float(loss), "metric": scores.get(row), "higher_is_better": higher, "correct": None, "row": row}
    if share and row in scores:
        fields["correct"] = scores[row] * share
    return Row(step, fields)


def _as_share(base: tuple[str, ...], values: Floats) -> float:
    """Return the factor that turns an accuracy into a share of 1, or 0 where the figure is none."""
    if not set(base) & {"acc", "accuracy", "acc1", "top1", "prec1"} or not np.isfinite(values).any():
        return 0.0
    largest = float(np.nanmax(values))
    return 1.0 if largest <= 1.0 else 0.01 if largest <= 100.0 else 0.0


def _comparable(table: Table, losses: tuple[str, ...], rows: Integers) -> Floats:
    return _sum(table, losses, rows) if losses else np.full(len(rows), np.nan)


def _facts(part: Part, roles: Roles, steps: Integers, role: str, of: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "steps": int(steps[-1]) + 1 if len(steps) else 0,
        "log": part.table.format,
        "log_axis": part.axis.unit,
        "log_curve": role,
        "log_loss": list(curve_columns(roles)),
        "log_parts": of,
        "log_part": part.how,
    }
    if part.resumes:
        facts["log_resumes"] = part.resumes
    names = {word for name in part.table.columns for word in meaning(name).base}
    facts["log_words"] = sorted(names)[:200]
    return facts
