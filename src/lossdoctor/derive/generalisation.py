"""How the loss on unseen rows goes beside the loss on the trained ones: the gap, when it opens, and what it costs in score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level, guessed_classes
from lossdoctor.derive.noise import noise_floor
from lossdoctor.derive.outcome import Outcome, outcome
from lossdoctor.derive.rise import LEAST_VALUES, Rise, rise
from lossdoctor.derive.smooth import blocks, rolling_median, tail, value_at
from lossdoctor.derive.unseen import field_series, seen_passes, unseen_passes

COMPARABLE = 0.5  # passes over trained rows per pass over unseen ones, from which on they stand for the training loss
COVERED = 0.8  # of the passes' steps that a score must reach to, to be the score at the end
LEAST_ERROR = 0.002  # of a score: the share that one row of 500 makes
HALF = 0.5  # errors of an untrained model, where it is not seen how often it guesses right


@dataclass(frozen=True)
class Generalisation:
    """Hold the course of the unseen loss beside the training loss. Levels are shares of what guessing gives (else of the start).

    Args:
        measure: what the unseen course is made of: `loss`, or where the script computes none on unseen rows, `error` (share of
            wrong answers).
        unseen: that measure on unseen rows, one value per pass.
        course: its minimum and what followed.
        reference: what the unseen level 1 stands for, in the unit of the measure.
        by_guess: whether that is what guessing gives.
        best, last: the unseen level at its best and at the end.
        trained_at_best, trained_last: the training level at the best step and at the end.
        score: `correct`, `r2` or empty.
        score_best, score_half_way, score_last: of the unseen rows: the best, that half way, the last; NaN without a score.
        score_error: standard error of a score.

    Example:
        >>> passes = [Row(10 * i, {"loss": loss, "seen": 0.0}) for i, loss in enumerate([1.0, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8])]
        >>> found = generalisation(Training(signals={"loss": Series.of([1.0] + [0.1] * 70)}, rows={"validation": passes}))
        >>> round(found.risen, 2), found.course.best_step
        (0.2, 20)
    """

    measure: str
    unseen: Series
    course: Rise
    reference: float
    by_guess: bool
    best: float
    last: float
    trained_at_best: float
    trained_last: float
    score: str
    score_best: float
    score_half_way: float
    score_last: float
    score_error: float

    @property
    def carried(self) -> float:
        """The unseen level at its best, by the spread of the unseen targets where that is known: few rows have not quite the training's."""
        return max(self.best, 1.0 - self.score_best) if self.score == "r2" else self.best

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

    @property
    def left_behind(self) -> float:
        """The training level over the unseen one at the end; near 0 where the run fits rows and not the task."""
        return self.trained_last / self.last if self.last > 0 else 1.0


def generalisation(training: Training) -> Generalisation | None:
    """Compare the loss on unseen rows with the training loss.

    Args:
        training: with the signal `loss` and rows `validation`; passes over trained rows stand for the training loss where the
            script makes them, since they run in the same mode.

    Returns:
        None for fewer than four passes with a loss or a share of right answers, or a training loss of both signs.

    Raises:
        SignalMissing: without a training loss or a validation pass.
    """
    passes = unseen_passes(training)
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None or seen.reference is None or seen.not_finite:
        return None
    measure, unseen, unit = _unseen(training, passes, seen.reference)
    course = rise(unseen)
    if course is None or unit <= 0:
        return None
    trained = _trained(training, measure, unseen, seen)
    # Few rows are wrong, so errors are coarse and their minimum comes early by luck: one that does not rise rests at its best to the end.
    resting = measure == "error" and course.onset is None
    score, best, half_way, last, error = _score(passes)
    return Generalisation(
        measure=measure,
        unseen=unseen,
        course=course,
        reference=unit,
        by_guess=seen.judged_by == "guess",
        best=course.best / unit,
        last=course.last / unit,
        trained_at_best=value_at(trained, int(unseen.steps[-1]) if resting else course.best_step),
        trained_last=float(np.median(tail(trained).values)),
        score=score,
        score_best=best,
        score_half_way=half_way,
        score_last=last,
        score_error=error,
    )


def _unseen(training: Training, passes: Sequence[Row], reference: float) -> tuple[str, Series, float]:
    """Return measure, course and unit on unseen rows: the loss, else the share of wrong answers."""
    losses, scores = (field_series(passes, name).finite() for name in ("loss", "correct"))
    if len(losses) >= LEAST_VALUES or len(scores) < LEAST_VALUES:
        return "loss", losses, reference
    counts = [call["class_counts"] for call in training.rows.get("loss_call", []) if call.get("class_counts")]
    tried = guessed_classes(training)
    untold = tried[1] if tried else HALF
    likeliest = float(np.mean([max(each) / max(sum(each), 1) for each in counts])) if counts else untold
    return "error", Series(scores.steps, 1.0 - scores.values), 1.0 - likeliest


def _trained(training: Training, measure: str, unseen: Series, seen: Outcome) -> Series:
    """Return the training level in the mode of validation where it is there, else averaged between the passes."""
    own = field_series(seen_passes(training), "loss").finite() if measure == "loss" else Series.of([])
    if len(own) < COMPARABLE * len(unseen) or not len(own):
        own = blocks(training.series("loss"), max(10, len(unseen)))
    return Series(own.steps, own.values / (seen.reference or 1.0))


def _score(passes: Sequence[Row]) -> tuple[str, float, float, float, float]:
    """Return name, best, that half way, last and standard error of the score of the passes; of shares the error is binomial."""
    for name in ("correct", "r2"):
        values = field_series(passes, name).finite()
        if len(values) >= 2 and values.steps[-1] >= COVERED * passes[-1].step:
            smooth = rolling_median(values, 3)
            best, last = float(smooth.values.max()), float(np.median(tail(values).values))
            rows = [float(row["rows"]) for row in passes if isinstance(row.get("rows"), int | float)]
            binomial = sqrt(max(best * (1 - best), 0.0) / float(np.median(rows))) if rows and name == "correct" else noise_floor(values)
            return name, best, value_at(smooth, passes[-1].step // 2), last, max(binomial, LEAST_ERROR)
    return "", float("nan"), float("nan"), float("nan"), float("nan")
