"""Schedules of the learning rate against the run: in which unit they are stepped, how long they are, what a plateau cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Training
from lossdoctor.derive.unseen import field_series

# Metric and measured figure are one where they differ by less than this share in the median: printed and rounded figures, means over
# batches of unequal size (starting value).
ALIKE = 0.05
LEAST = 3  # values from which two courses can be compared
PER_BATCH = 0.9  # calls per step from which a schedule is stepped at every batch; a skipped step or two takes nothing away
FEW_EPOCHS = 2.0


def schedules(training: Training) -> list[Mapping[str, Any]]:
    """Return the recorded schedulers of a training that count on their own."""
    found = training.fact("schedules")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, Sequence) else []


def number(schedule: Mapping[str, Any], name: str) -> float | None:
    """Return a setting as a number; None where the schedule has none of this name."""
    value = schedule.get(name)
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def length(schedule: Mapping[str, Any]) -> float | None:
    """Return after how many of its steps a schedule is at its end, None where it has none.

    Example:
        >>> length({"name": "CosineAnnealingLR", "T_max": 30})
        30.0
    """
    if schedule.get("name") == "CosineAnnealingWarmRestarts":
        return None
    for name in ("T_max", "total_steps", "total_iters"):
        if (found := number(schedule, name)) is not None:
            return found
    return None


def per_batch(training: Training, schedule: Mapping[str, Any]) -> bool:
    """Tell whether a schedule was stepped with (nearly) every step of the optimiser, and an epoch has several of them."""
    epochs = epochs_of(training)
    several = epochs is None or training.steps >= FEW_EPOCHS * epochs
    return several and (number(schedule, "calls") or 0.0) >= PER_BATCH * training.steps


def epochs_of(training: Training) -> float | None:
    """Return how many epochs a training took: by the rows of its loader, else by its validation passes; None where neither is known.

    Example:
        >>> epochs_of(Training(facts={"steps": 100, "loader": {"rows": 80, "batch_size": 8}}))
        10.0
    """
    loader = training.fact("loader")
    rows, size = (number(loader, name) if isinstance(loader, Mapping) else None for name in ("rows", "batch_size"))
    if rows and size and rows > size:
        return training.steps / (rows // size if loader.get("drop_last") else -(-rows // size))
    passes = {row.step for row in training.rows.get("validation", [])}
    return float(len(passes)) if len(passes) > 1 else None


def plateau_cuts(schedule: Mapping[str, Any], mode: str) -> list[int]:
    """Return at which of its calls a plateau of this mode cuts the rate, by the metric that it was given.

    Source: the documentation of torch.optim.lr_scheduler.ReduceLROnPlateau (patience, threshold, cooldown).

    Example:
        >>> plateau_cuts({"patience": 1, "threshold": 0.0, "metrics": [0.1, 0.2, 0.3, 0.4, 0.5]}, "min")
        [2, 4]
    """
    patience, cooldown = (number(schedule, name) or 0.0 for name in ("patience", "cooldown"))
    threshold = number(schedule, "threshold") or 0.0
    sign = -1.0 if mode == "max" else 1.0
    best, bad, rest, cuts = float("inf"), 0, 0.0, []
    for call, value in enumerate(sign * metrics(schedule)):
        margin = threshold if schedule.get("threshold_mode") == "abs" else threshold * abs(best)
        better = value < (best - margin if isfinite(best) else best)
        best, bad = (float(value), 0) if better else (best, bad + 1)
        if rest > 0:
            rest, bad = rest - 1, 0
        if bad > patience:
            cuts.append(call)
            bad, rest = 0, cooldown
    return cuts


def metrics(schedule: Mapping[str, Any]) -> Floats:
    """Return what a plateau was given, shape (calls,)."""
    given = schedule.get("metrics")
    values = given if isinstance(given, Sequence) and not isinstance(given, str) else []
    return np.array([value if isinstance(value, int | float) else np.nan for value in values], dtype=np.float64)


def better_way(training: Training, given: Floats) -> str | None:
    """Return `min` for a metric that is a loss and `max` for one that is a score, by what was measured beside it; None where unknown."""
    rows = training.rows.get("validation", [])
    for name, scales, way in (("loss", (1.0,), "min"), ("correct", (1.0, 100.0), "max"), ("r2", (1.0,), "max")):
        seen = field_series(rows, name).values
        if any(_alike(given / scale, seen) for scale in scales):
            return way
    loss = training.signals.get("loss")
    if loss is not None and len(loss) >= len(given) >= LEAST:
        means = np.array([part.mean() for part in np.array_split(loss.values, len(given))])
        if _alike(given, means):
            return "min"
    return None


def _alike(given: Floats, seen: Floats) -> bool:
    if len(given) != len(seen) or len(given) < LEAST or not np.isfinite(seen).all() or np.ptp(given) <= 0:
        return False
    return bool(np.median(np.abs(given - seen)) <= ALIKE * np.median(np.abs(seen)))
