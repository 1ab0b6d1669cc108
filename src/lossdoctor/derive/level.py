"""What a loss is without learning: the level that guessing reaches, and the level at which a sound start begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Row, Training

CLASSES = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
MEAN_ABSOLUTE = 0.798  # mean absolute deviation over standard deviation of a normal distribution, sqrt(2 / pi)


@dataclass(frozen=True)
class Level:
    """Hold what a loss is expected to be before anything is learned, in the unit of the loss.

    Args:
        guess: loss of the best constant answer (class frequencies, mean of the targets).
        start: loss of answering zero to everything (all classes alike), where a sound untrained model begins.

    Example:
        >>> Level(2.2, 2.303).highest
        2.303
    """

    guess: float
    start: float

    @property
    def highest(self) -> float:
        """The higher of the two: a first loss far above it comes from answers that are confident and wrong."""
        return max(self.guess, self.start)


def expected_level(training: Training) -> Level | None:
    """Return the expectation that follows from the targets of the known loss calls.

    A batch is a small sample: its own best constant does better than one constant for all batches, so the targets of all
    recorded calls are pooled.

    Args:
        training: with rows `loss_call`.

    Returns:
        None where no loss call is known, their kinds differ, or backward was called on something else than their value, and no
        experiment found it.

    Example:
        >>> call = Row(0, {"kind": "cross_entropy", "class_counts": [50, 50], "guess_loss": 0.693, "zero_loss": 0.693})
        >>> expected_level(Training(rows={"loss_call": [call]}))
        Level(guess=0.693, start=0.693)
    """
    known = training.fact("loss_source", "call") == "call"
    level = level_of_calls(training.rows.get("loss_call", [])) if known else None
    return level or _tried(training)


def _tried(training: Training) -> Level | None:
    """Return the expectation that the experiment found by trying constant answers, for losses that no known call makes."""
    facts = training.found("guess")
    guess, start = _number(facts, "guess"), _number(facts, "zero")
    return Level(guess, start) if guess is not None and start is not None and guess > 0 else None


def guessed_classes(training: Training) -> tuple[int, float] | None:
    """Return the number of classes and the share of the most frequent one, where the experiment `guess` found classes."""
    facts = training.found("guess")
    return (int(facts["classes"]), float(facts["likeliest"])) if "classes" in facts else None


def level_of_calls(calls: Sequence[Row]) -> Level | None:
    """Return the expectation of loss calls of one kind; None where the kinds differ or nothing is known of them.

    Example:
        >>> call = {"kind": "mse_loss", "target_std": 0.0, "guess_loss": 0.0, "zero_loss": 1.0}
        >>> level_of_calls([Row(0, {**call, "target_mean": -1.0}), Row(1, {**call, "target_mean": 1.0})])
        Level(guess=1.0, start=1.0)
    """
    known = [call for call in calls if _number(call, "guess_loss") is not None and _number(call, "zero_loss") is not None]
    kinds = {str(call.get("kind")) for call in known}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    guesses, zeros = (np.array([_number(call, name) or 0.0 for call in known]) for name in ("guess_loss", "zero_loss"))
    start = float(np.median(zeros))
    if kind in CLASSES:
        guess = _of_classes(known, float(guesses.mean()), start)
    elif kind in BINARY:
        guess = _of_bernoulli(known, float(guesses.mean()), start)
    else:
        guess = _of_distance(known, kind, float(guesses.mean()), float(zeros.mean()))
    return Level(guess, start) if isfinite(guess) and isfinite(start) else None


def _of_classes(calls: Sequence[Row], mean: float, start: float) -> float:
    """Return the guess from the class frequencies of all calls; weighted classes keep the mean of the calls' own guesses."""
    counts = _pooled_counts(calls)
    if counts is None or len(counts) < 2 or any(call.get("weighted") for call in calls):
        return mean
    smoothing = _number(calls[0], "label_smoothing") or 0.0
    shares = (1 - smoothing) * counts / counts.sum() + smoothing / len(counts)
    shares = shares[shares > 0]
    missing = 0.0 if smoothing else (len(shares) - 1) / (2 * float(counts.sum()))  # Miller 1955: a sample's entropy is too low
    entropy = min(float(-(shares * np.log(shares)).sum()) + missing, log(len(counts)))
    return start * entropy / log(len(counts))


def _pooled_counts(calls: Sequence[Row]) -> Floats | None:
    known = [call["class_counts"] for call in calls if call.get("class_counts")]
    width = max((len(counts) for counts in known), default=0)
    pooled = np.zeros(width)
    for counts in known:
        pooled[: len(counts)] += counts
    return pooled if pooled.sum() > 0 else None


def _of_bernoulli(calls: Sequence[Row], mean: float, start: float) -> float:
    """Return the guess of frequencies of ones; a batch of one row knows none, so there the mean of all targets stands in."""
    rows = float(np.median([(call.get("target_shape") or [1])[0] for call in calls]))
    if rows >= 2:
        return min(mean + start / log(2) / (2 * rows), start) if start > 0 else mean
    share = float(np.mean([_number(call, "target_mean") or 0.0 for call in calls]))
    if not 0 < share < 1:
        return mean
    return start / log(2) * (-share * log(share) - (1 - share) * log(1 - share))


def _of_distance(calls: Sequence[Row], kind: str, mean: float, zero: float) -> float:
    """Return the guess of a constant under a loss of the distance, with the spread between batches added to that within."""
    pairs = [(_number(call, "target_mean"), _number(call, "target_std")) for call in calls]
    known = np.array([(middle, deviation) for middle, deviation in pairs if middle is not None and deviation is not None])
    if not len(known):
        return mean
    within = float(np.mean(known[:, 1] ** 2))
    pooled = within + float(np.var(known[:, 0]))
    square = kind == "mse_loss"
    if within > 0:
        return mean * (pooled / within if square else (pooled / within) ** 0.5)
    unit = zero / (pooled + float(known[:, 0].mean()) ** 2) if square and pooled > 0 else 1.0
    return unit * (pooled if square else MEAN_ABSOLUTE * pooled**0.5)


def _number(row: Row | Mapping[str, Any], field: str) -> float | None:
    value = row.get(field)
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
