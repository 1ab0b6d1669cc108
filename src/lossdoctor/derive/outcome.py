"""What became of a loss: where it began, its best, where it ended, and whether that is better than guessing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.noise import noise_floor, spread
from lossdoctor.derive.smooth import blocks, tail

# A level within 5 % of what guessing gives has not got clearly below it. Starting value: labels without meaning measured .98-1.0
# on unseen rows, a regression whose noise leaves R2 = .22 ends at .78 (field guide, "Measured").
CLEARLY = 0.95
# More of the way down lost than kept: the run is not where its own best was (starting value).
LOST = 0.5
ERRORS = 5.0  # standard errors that the way back must exceed: the best of many levels is low by chance
# Levels are means of so many stretches, of five values at least where there are enough: a single batch of one row may score 0.
BLOCKS, LEAST_BLOCKS, BLOCK = 60, 6, 5


@dataclass(frozen=True)
class Outcome:
    """Hold the course of a loss in a few figures.

    Args:
        first: the first finite value.
        early: mean of the first block, at most a sixth of the run.
        best, best_step: lowest block mean and the step where that block ends.
        last: median of the last five block means.
        peak: highest finite value.
        shake: robust standard deviation of the single values of the last tenth.
        error: standard error of a level, from the noise of the single values.
        broken_from: first step of the stretch of values that are not finite and last to the end; None where the end is finite.
        reference: what it is measured against: the guess where known, else the start; None where the loss takes both signs.
        judged_by: `guess`, `start`, or `nothing`.

    Example:
        >>> outcome(Series.of([2.3, 1.0, 0.1]), 2.3).failed
        False
    """

    first: float
    early: float
    best: float
    best_step: int
    last: float
    peak: float
    shake: float
    error: float
    broken_from: int | None
    reference: float | None
    judged_by: str

    @property
    def not_finite(self) -> bool:
        """Tell whether the loss ended as NaN or infinite."""
        return self.broken_from is not None

    @property
    def level(self) -> float | None:
        """The last level over the reference; 1 is as good as guessing."""
        return None if self.reference is None else self.last / self.reference

    @property
    def stuck(self) -> bool:
        """Tell whether the loss ended about where guessing, or the start, is; or above."""
        return self.level is not None and self.level > CLEARLY

    @property
    def lost(self) -> bool:
        """Tell whether the loss came down and then went most of the way back up."""
        if self.reference is None or self.best > CLEARLY * self.reference:
            return False
        return self.last - self.best > max(LOST * (self.reference - self.best), ERRORS * self.error)

    @property
    def failed(self) -> bool:
        """Tell whether the loss is not finite, not below guessing, or far above its own best at the end."""
        return self.not_finite or self.stuck or self.lost

    @property
    def fell(self) -> float | None:
        """The share of the reference that the loss lost between its start and its end."""
        return None if self.reference is None else (max(self.early, min(self.first, self.reference)) - self.last) / self.reference


def outcome(loss: Series, guess: float | None = None) -> Outcome | None:
    """Describe the course of a loss.

    Args:
        loss: scalar, shape (n,), one value per step or per line of a log.
        guess: loss of the best constant answer (`level.expected_level`); None where unknown.

    Returns:
        None where no value is finite.

    Example:
        >>> outcome(Series.of([2.3, 2.3, 2.4, 2.3]), 2.3).stuck
        True
    """
    means = blocks(loss, min(BLOCKS, max(LEAST_BLOCKS, len(loss) // BLOCK)))
    if not len(means):
        return None
    kept = loss.finite()
    reference, by = _reference(kept, means, guess)
    lowest = int(np.argmin(means.values))
    return Outcome(
        first=kept.first,
        early=means.first,
        best=float(means.values[lowest]),
        best_step=int(means.steps[lowest]),
        last=float(np.median(tail(means, 0.0, 5).values)),
        peak=float(kept.values.max()),
        shake=spread(tail(kept, 0.1, 10)),
        error=noise_floor(kept) / max(1.0, len(kept) / len(means)) ** 0.5,
        broken_from=broken_from(loss),
        reference=reference,
        judged_by=by,
    )


def _reference(kept: Series, means: Series, guess: float | None) -> tuple[float | None, str]:
    if guess is not None and guess > 0:
        return guess, "guess"
    # The first value of a tiny batch may be low by chance; the lowest mean of the first sixth stands in, which an explosion
    # right at the start does not raise.
    start = max(kept.first, float(means.values[: max(1, len(means) // 6)].min()))
    # A loss that takes both signs (policy gradients, likelihoods of densities) has no level that means "nothing learnt".
    return (start, "start") if float(kept.values.min()) >= 0 and start > 0 else (None, "nothing")


def broken_from(loss: Series) -> int | None:
    """Return the step from which a loss is not finite to its end; None where its last value is finite.

    Example:
        >>> broken_from(Series.of([1.0, float("nan"), float("inf")]))
        1
    """
    if not len(loss) or np.isfinite(loss.values[-1]):
        return None
    good = np.nonzero(np.isfinite(loss.values))[0]
    return int(loss.steps[int(good[-1]) + 1]) if len(good) else int(loss.steps[0])
