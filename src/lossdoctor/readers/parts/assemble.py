"""From the rows of one run in a log to a `Training`: the same signals as a watched run has, as far as a log goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.run import Integers, Series, Training
from lossdoctor.readers.parts.axis import curve_columns
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.split import Part
from lossdoctor.readers.parts.validation import Placer, total, validation_rows

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


def assemble(part: Part, roles: Roles, index: int, of: int) -> Training:
    """Build the training of one run of a log."""
    axis = part.axis
    steps, rows = _steps(part)
    training = Training(index=index, facts=dict(part.table.facts))
    columns = curve_columns(roles)
    values = total(part.table, columns, rows)
    role = next((name for name, held in roles.chosen.items() if held == columns), "loss")
    if "loss" in roles.chosen or role == "validation_loss":
        training.signals["loss"] = Series(steps, values)
    if axis.epochs is not None:
        kept = np.isin(axis.rows, rows)
        training.signals["epoch"] = Series(steps, axis.epochs[kept])
    place = Placer(steps, rows)
    for name, signal in _SIGNALS.items():
        column = part.table.columns.get(roles.one(name) or "")
        if column is not None and len(column):
            training.signals[signal] = place.series(column)
    held_out = validation_rows(part, roles, place)
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
