"""The figures of a run that a report shows beside its findings, and whether a training failed."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Run, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.parts import queued_share, time_parts
from lossdoctor.derive.wait import Wait, wait_share

CURVE_POINTS = 200
LAST_SHARE = 0.1


def vitals(run: Run, training: Training) -> dict[str, Any]:
    """Return the figures of a run, taken from its main training; a figure that was not recorded is left out."""
    wait, level = waiting(training), expected_level(training)
    figures = {
        "steps": training.steps,
        "trainings": len(run.trainings),
        **{name: value for name, value in short(training).items() if name in ("first_loss", "last_loss")},
        "expected_first_loss": _round(level.start) if level else None,
        "best_validation_loss": _best(training, "loss", min),
        "best_validation_accuracy": _best(training, "correct", max),
        "wait_share": _round(wait.share) if wait else None,
        "step_seconds": _round(wait.step_seconds) if wait else None,
        "time_shares": _time_shares(training, wait),
        "queued_share": _queued_share(training),
        "overhead_share": run.facts.get("overhead_share"),
        "seconds": (run.facts.get("ended") or {}).get("seconds"),
    }
    return {name: value for name, value in figures.items() if value is not None}


def short(training: Training) -> dict[str, Any]:
    """Return the few figures that tell one training from another."""
    loss = training.signals.get("loss", Series.of([]))
    ends = {"first_loss": _round(loss.finite().first), "last_loss": _round(_end(loss))} if len(loss.finite()) else {}
    return {"steps": training.steps, **ends, "optimizer": (training.fact("optimizer") or {}).get("name")}


def _end(loss: Series) -> float:
    """Return the median of the last tenth, so that one batch does not stand for all; the last value where that is not finite."""
    tail = loss.values[-max(1, int(len(loss) * LAST_SHARE)) :]
    return float(np.median(tail[np.isfinite(tail)])) if np.isfinite(loss.last) else loss.last


def failed(training: Training) -> bool:
    """Tell whether a training did not learn: its loss ended non-finite, or never got clearly below what guessing gives.

    Where the guess is not known the start of the loss stands for it, but not in a phase that goes on from an earlier one. Of
    generative pairs, whose losses rise when the other side gets better, only a non-finite end counts.
    """
    level = expected_level(training)
    course = outcome(training.signals.get("loss", Series.of([])), level.guess if level else None)
    if course is None:
        return True
    unknown = bool(training.roles) or (training.phase_of is not None and course.judged_by == "start")
    return course.not_finite if unknown else course.failed


def waiting(training: Training) -> Wait | None:
    """Return where the time of the steps goes: to waiting in the loader, or idle, or to work; None where it was not measured."""
    wall, loader, idle = (training.signals.get(name) for name in ("wall", "loader_seconds", "idle_seconds"))
    if wall is None or (loader is None and idle is None):
        return None
    return wait_share(wall, loader, idle, training.signals.get("gap_seconds"), _passes(training))


def _passes(training: Training) -> list[tuple[float, float]]:
    """Return when validation passes began and ended."""
    passes = [(row.get("began"), row.get("seconds")) for row in training.rows.get("validation", [])]
    return [(began, began + seconds) for began, seconds in passes if began is not None and seconds is not None]


def _time_shares(training: Training, wait: Wait | None) -> dict[str, float] | None:
    parts = time_parts(training.signals, wait, _passes(training))
    return None if parts is None else {name: round(share, 4) for name, share in parts.items()}


def _queued_share(training: Training) -> float | None:
    share = queued_share(training.signals)
    return None if share is None else round(share, 4)


def _best(training: Training, field: str, best: Any) -> float | None:
    values = [row.get(field) for row in training.rows.get("validation", [])]
    known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return _round(best(known)) if known else None


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def curve(training: Training, points: int = CURVE_POINTS) -> list[tuple[int, float]]:
    """Return the loss thinned to at most `points` pairs (step, loss), keeping the lowest and highest of each stretch.

    Example:
        >>> curve(Training(signals={"loss": Series.of([3.0, 2.0, 1.0])}))
        [(0, 3.0), (1, 2.0), (2, 1.0)]
    """
    loss = training.signals.get("loss", Series.of([])).finite()
    keep = range(len(loss)) if len(loss) <= points else _extremes(loss.values, points // 2)
    return [(int(loss.steps[i]), float(loss.values[i])) for i in keep]


def _extremes(values: Floats, stretches: int) -> list[int]:
    bounds = np.linspace(0, len(values), stretches + 1).astype(int)
    pairs = [{int(a + values[a:b].argmin()), int(a + values[a:b].argmax())} for a, b in pairwise(bounds)]
    return sorted(set().union(*pairs))
