"""The figures of a run that a report shows beside its findings, and whether a training failed."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Row, Run, Series, Training

CURVE_POINTS = 200
# A loss within 2 % of what guessing gives has learnt nothing (starting value; labels without meaning measured 0.98-1.0 of
# the label entropy on unseen rows, healthy runs at most 0.24: field guide, "Measured").
GUESSING = 0.98
# First loss calls that the expected first loss is the median of, and last share of the run that its loss is taken from.
FIRST_CALLS, LAST_SHARE = 5, 0.1
_CLASSES = ("cross_entropy", "nll_loss")
_SQUARES = ("mse_loss",)
_BINARY = ("binary_cross_entropy_with_logits", "binary_cross_entropy")


def vitals(run: Run, training: Training) -> dict[str, Any]:
    """Return the figures of a run, taken from its main training; a figure that was not recorded is left out."""
    seconds = step_seconds(training)
    figures = {
        "steps": training.steps,
        "trainings": len(run.trainings),
        **{name: value for name, value in short(training).items() if name in ("first_loss", "last_loss")},
        "expected_first_loss": expected_first_loss(training),
        "best_validation_loss": _best(training, "loss", min),
        "best_validation_accuracy": _best(training, "correct", max),
        "wait_share": wait_share(training),
        "step_seconds": seconds,
        "overhead_share": run.facts.get("overhead_share"),
        "seconds": (run.facts.get("ended") or {}).get("seconds"),
    }
    return {name: value for name, value in figures.items() if value is not None}


def short(training: Training) -> dict[str, Any]:
    """Return the few figures that tell one training from another."""
    loss = training.signals.get("loss", Series.of([])).finite()
    ends = {"first_loss": _round(loss.first), "last_loss": _round(last_loss(training))} if len(loss) else {}
    return {"steps": training.steps, **ends, "optimizer": (training.fact("optimizer") or {}).get("name")}


def last_loss(training: Training) -> float:
    """Return the median loss of the last tenth of the steps; NaN or infinite where the run ended so."""
    loss = training.signals.get("loss", Series.of([]))
    if not len(loss):
        return math.nan
    tail = loss.values[-max(1, int(len(loss) * LAST_SHARE)) :]
    return float(np.median(tail)) if np.isfinite(loss.last) else loss.last


def failed(training: Training) -> bool:
    """Tell whether a training did not learn: its loss ended non-finite, or never got clearly below what guessing gives.

    Where the loss has a form whose guess is unknown (hand-written, generative pairs), only a non-finite end counts.
    """
    loss = training.signals.get("loss", Series.of([]))
    if not len(loss):
        return True
    if not np.isfinite(loss.last):
        return True
    guess = expected_first_loss(training)
    if guess is None or guess <= 0 or training.roles:
        return False
    return last_loss(training) > GUESSING * guess


def expected_first_loss(training: Training) -> float | None:
    """Return the loss of the best constant answer to the targets seen first, or None where it cannot be known.

    The median over the first loss calls. For classes it is the entropy of the targets in nats, for a squared error their
    variance, for binary targets the entropy of their mean. A loss that is not the mean of one known call has none.
    """
    if training.fact("loss_source", "call") != "call":
        return None
    rows = training.rows.get("loss_call", [])[:FIRST_CALLS]
    guesses = [guess for guess in map(guess_loss, rows) if guess is not None and math.isfinite(guess)]
    return _round(float(np.median(guesses))) if guesses else None


def guess_loss(call: Row) -> float | None:
    """Return what the best constant answer scores on the targets of one loss call, or None where the kind is not known."""
    kind, spread, mean = call.get("kind"), call.get("target_std"), call.get("target_mean")
    if call.get("reduction", "mean") != "mean":
        return None
    if kind in _CLASSES:
        return call.get("target_entropy")
    if kind in _SQUARES and spread is not None:
        return float(spread) ** 2
    if kind in _BINARY and mean is not None and 0 < mean < 1:
        return float(-mean * math.log(mean) - (1 - mean) * math.log(1 - mean))
    return None


def step_seconds(training: Training) -> float | None:
    """Return the median seconds of a step with the wait before it, validation left out."""
    whole = _durations(training)
    return _round(float(np.nanmedian(whole))) if whole is not None and np.isfinite(whole).any() else None


def wait_share(training: Training) -> float | None:
    """Return the share of the training's time that it waited for data, in [0, 1].

    Waiting is the time in the loader or idle before a step, whichever was longer, within the gap between two steps.
    """
    whole = _durations(training)
    gap = training.signals.get("gap_seconds")
    if whole is None or gap is None or not np.nansum(whole):
        return None
    waits = [training.signals[name].values for name in ("loader_seconds", "idle_seconds") if name in training.signals]
    if not waits or any(len(each) != len(gap) for each in waits):
        return None
    longest = np.nanmax(np.vstack([*waits, np.zeros(len(gap))]), axis=0)
    return _round(float(np.nansum(np.minimum(longest, gap.values)) / np.nansum(whole)))


def _durations(training: Training) -> Floats | None:
    parts = [training.signals.get(name) for name in ("gap_seconds", "forward_seconds", "backward_seconds", "step_seconds")]
    known = [part.values for part in parts if part is not None]
    if not known or any(len(part) != len(known[0]) for part in known):
        return None
    return np.asarray(np.sum(np.nan_to_num(np.vstack(known)), axis=0), dtype=np.float64)


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
