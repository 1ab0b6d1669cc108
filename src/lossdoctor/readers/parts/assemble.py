"""From the rows of one run in a log to a `Training`: the same signals as a watched run has, as far as a log goes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Integers, Series, Training
from lossdoctor.derive.noise import noise_floor
from lossdoctor.readers.parts.axis import curve_columns
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.split import Part
from lossdoctor.readers.parts.validation import Placer, share_of, total, validation_rows

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
# Values on each side of a restart that its level is taken from.
_SIDE = 20


def assemble(part: Part, roles: Roles, index: int, of: int) -> Training:
    """Build the training of one run of a log.

    Args:
        part: the run.
        roles: the columns and what they play.
        index: its number in the log, from 0.
        of: how many runs the log holds.
    """
    steps, rows = _steps(part)
    training = Training(index=index, facts=dict(part.table.facts))
    columns = curve_columns(roles)
    role = next((name for name, held in roles.chosen.items() if held == columns), "loss")
    place = Placer(steps, rows)
    for name, signal in _SIGNALS.items():
        column = part.table.columns.get(roles.one(name) or "")
        if column is not None and len(column):
            training.signals[signal] = place.series(column)
    if role in ("loss", "validation_loss"):
        training.signals["loss"] = _undisguised(training, Series(steps, total(part.table, columns, rows)))
    if part.axis.epochs is not None:
        training.signals["epoch"] = Series(steps, part.axis.epochs[np.isin(part.axis.rows, rows)])
    _training_accuracy(training, roles)
    held_out = validation_rows(part, roles, place)
    if held_out:
        training.rows["validation"] = held_out
    training.facts.update(_facts(part, roles, steps, role, of))
    if part.resumes:
        training.facts["log_resumes"] = [_resume(training, part, resume) for resume in part.resumes]
    return training


def _steps(part: Part) -> tuple[Integers, Integers]:
    """Return the steps of the curve and their rows: the log's own count where it is one of whole numbers that rise."""
    places, rows = part.axis.places, part.axis.rows
    if part.axis.unit == "step":
        kept = np.concatenate([np.diff(places) != 0, [True]]) if len(places) else np.zeros(0, dtype=bool)
        places, rows = places[kept], rows[kept]
    whole = bool(np.all(places == np.floor(places))) and bool(np.all(np.diff(places) > 0)) and bool(np.all(np.abs(places) < 2**53))
    return (places.astype(np.int64) if whole else np.arange(len(places)), rows)


def _undisguised(training: Training, loss: Series) -> Series:
    """Turn a loss of exactly 0 beside a gradient norm that is no number back into NaN: loggers write 0 for NaN."""
    norms = training.signals.get("grad_norm", Series.of([]))
    broken = norms.steps[~np.isfinite(norms.values)]
    hidden = (loss.values == 0.0) & np.isin(loss.steps, broken)
    if not hidden.any():
        return loss
    training.facts["disguised"] = int(hidden.sum())
    return Series(loss.steps, np.where(hidden, np.nan, loss.values))


def _training_accuracy(training: Training, roles: Roles) -> None:
    metric = roles.one("metric")
    held = training.signals.get("train_metric")
    share = share_of(meaning(metric).base, held.values.tolist()) if metric and held is not None else 0.0
    if held is not None and share:
        training.signals["train_correct"] = Series(held.steps, held.values * share)


def _facts(part: Part, roles: Roles, steps: Integers, role: str, of: int) -> dict[str, Any]:
    words = {word for name in part.table.columns for word in meaning(name).base}
    return {
        "steps": int(steps[-1]) + 1 if len(steps) else 0,
        "log": part.table.format,
        "log_axis": part.axis.unit,
        "log_curve": role,
        "log_loss": list(curve_columns(roles)),
        "log_parts": of,
        "log_part": part.how,
        "log_words": sorted(words)[:200],
    }


def _resume(training: Training, part: Part, resume: dict[str, Any]) -> dict[str, Any]:
    """Add to a restart the level of the loss and the rate on both sides of it."""
    loss = training.signals.get("loss", Series.of([])).finite()
    if training.facts["log_axis"] == "row" or not len(loss):
        return resume
    at = resume["at"] if part.axis.unit == "step" else _step_of(training, resume["at"])
    before, after = _sides(loss, at)
    if not len(before) or not len(after):
        return resume
    around = Series(np.arange(len(before)), before)
    told = {"before": float(np.median(before[-3:])), "after": float(np.median(after[:3])), "noise": noise_floor(around)}
    rates = training.signals.get("lr", Series.of([])).finite()
    low, high = _sides(rates, at)
    if len(low) and len(high):
        told["rates"] = [float(low[-1]), float(high[0])]  # type: ignore[assignment]
    return {**resume, **told}


def _step_of(training: Training, epoch: float) -> float:
    epochs = training.signals.get("epoch", Series.of([]))
    hit = np.searchsorted(epochs.values, epoch)
    return float(epochs.steps[min(int(hit), len(epochs) - 1)]) if len(epochs) else epoch


def _sides(series: Series, at: float) -> tuple[Floats, Floats]:
    cut = int(np.searchsorted(series.steps, at))
    return series.values[max(0, cut - _SIDE) : cut], series.values[cut : cut + _SIDE]


def mark_continued(trainings: list[Training]) -> None:
    """Note of each run whether it goes on from where the one before ended: it begins nearer to its end than to its start.

    Args:
        trainings: the runs of one log, in order; their facts are completed.
    """
    for before, after in pairwise(trainings):
        first, second = before.signals.get("loss", Series.of([])).finite(), after.signals.get("loss", Series.of([])).finite()
        if len(first) < 2 or not len(second) or after.facts.get("log_part") != "restart":
            continue
        end = float(np.median(first.values[-3:]))
        if abs(second.first - end) < 0.5 * abs(second.first - first.first) and first.first > end:
            after.facts["log_continues"] = True
