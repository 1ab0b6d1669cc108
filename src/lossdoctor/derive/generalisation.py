"""How the loss on unseen rows goes beside the loss on the trained ones: the gap, when it opens, and what it costs in score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.noise import noise_floor
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.rise import Rise, rise
from lossdoctor.derive.smooth import blocks, rolling_median, tail, value_at
from lossdoctor.derive.unseen import field_series, seen_passes, unseen_passes

LEAST_ERROR = 0.002  # of a score: the share that one row of 500 makes
COMPARABLE = 0.5  # passes over trained rows per pass over unseen ones, from which on they stand for the training loss


@dataclass(frozen=True)
class Generalisation:
    """Hold the course of the unseen loss beside the training loss. Levels are shares of what guessing gives (else of the start).

    Args:
        unseen: the loss on unseen rows, one value per pass, in the unit of the loss.
        course: its minimum and what followed, in the unit of the loss.
        reference: what 1 stands for, in the unit of the loss.
        by_guess: whether that is what guessing gives.
        best, last: the unseen level at its best and at the end.
        trained_at_best, trained_last: the training level at the best step and at the end.
        first_gap: how far unseen lay above trained at the first pass.
        score: `correct`, `r2` or empty.
        score_best, score_at_best, score_last: of the unseen rows: the best, that at the best loss, the last; NaN without a score.
        score_error: standard error of a score.

    Example:
        >>> passes = [Row(10 * i, {"loss": loss, "seen": 0.0}) for i, loss in enumerate([1.0, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8])]
        >>> found = generalisation(Training(signals={"loss": Series.of([1.0] + [0.1] * 70)}, rows={"validation": passes}))
        >>> round(found.risen, 2), found.course.best_step
        (0.2, 20)
    """

    unseen: Series
    course: Rise
    reference: float
    by_guess: bool
    best: float
    last: float
    trained_at_best: float
    trained_last: float
    first_gap: float
    score: str
    score_best: float
    score_at_best: float
    score_last: float
    score_error: float

    @property
    def risen(self) -> float:
        """How far the unseen level rose since its best."""
        return self.last - self.best

    @property
    def gap(self) -> float:
        """How far the unseen level lies above the trained one at the end."""
        return self.last - self.trained_last

    @property
    def gap_at_best(self) -> float:
        """The same at the step of the best unseen loss: what no earlier stop would save."""
        return self.best - self.trained_at_best


def generalisation(training: Training) -> Generalisation | None:
    """Compare the loss on unseen rows with the training loss.

    Args:
        training: with the signal `loss` and rows `validation`; passes over trained rows stand for the training loss where the
            script makes them, since they run in the same mode.

    Returns:
        None for fewer than four passes with a loss, or a loss of both signs.

    Raises:
        SignalMissing: without a training loss or a validation pass.
    """
    passes = unseen_passes(training)
    unseen = field_series(passes, "loss").finite()
    course = rise(unseen)
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if course is None or seen is None or seen.reference is None or seen.not_finite:
        return None
    trained = _trained(training, unseen)
    share = 1.0 / seen.reference
    score, best, at_best, last, error = _score(passes, course.best_step)
    return Generalisation(
        unseen=unseen,
        course=course,
        reference=seen.reference,
        by_guess=seen.judged_by == "guess",
        best=course.best * share,
        last=course.last * share,
        trained_at_best=value_at(trained, course.best_step) * share,
        trained_last=float(np.median(tail(trained).values)) * share,
        first_gap=(unseen.first - value_at(trained, int(unseen.steps[0]))) * share,
        score=score,
        score_best=best,
        score_at_best=at_best,
        score_last=last,
        score_error=error,
    )


def _trained(training: Training, unseen: Series) -> Series:
    """Return the training loss in the mode of validation where it is there, else averaged between the passes."""
    own = field_series(seen_passes(training), "loss").finite()
    if len(own) >= COMPARABLE * len(unseen):
        return own
    return blocks(training.series("loss"), max(10, len(unseen)))


def _score(passes: Sequence[Row], step: int) -> tuple[str, float, float, float, float]:
    """Return name, best, that at a step, last and standard error of the score of the passes; of shares the error is binomial."""
    for name in ("correct", "r2"):
        values = field_series(passes, name).finite()
        if len(values) >= 2:
            smooth = rolling_median(values, 3)
            best, last = float(smooth.values.max()), float(np.median(tail(values).values))
            rows = [float(row["rows"]) for row in passes if isinstance(row.get("rows"), int | float)]
            binomial = sqrt(max(best * (1 - best), 0.0) / float(np.median(rows))) if rows and name == "correct" else noise_floor(values)
            return name, best, value_at(smooth, step), last, max(binomial, LEAST_ERROR)
    return "", float("nan"), float("nan"), float("nan"), float("nan")
