"""A curve that falls and then rises: where it was lowest, how far it rose since, and whether noise explains that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.noise import noise_floor
from lossdoctor.derive.smooth import rolling_median, tail

LEAST_VALUES = 4  # fewer passes show neither a minimum nor their own noise


@dataclass(frozen=True)
class Rise:
    """Hold what a curve did after its lowest value.

    Args:
        best_step: step of the lowest value of the smoothed curve.
        best: that value.
        onset: first step after it from which the smoothed curve stays above the best by two standard errors; None if never.
        last: level at the end (median of the last tenth, three values at least).
        noise: standard deviation of a single value.

    Example:
        >>> Rise(10, 0.5, 20, 0.9, 0.02).amount
        0.4
    """

    best_step: int
    best: float
    onset: int | None
    last: float
    noise: float

    @property
    def amount(self) -> float:
        """How far the end lies above the best."""
        return self.last - self.best

    @property
    def sigmas(self) -> float:
        """The amount in standard deviations of a single value; infinite for a curve without noise that rose."""
        if self.amount <= 0:
            return 0.0
        return self.amount / self.noise if self.noise > 0 else float("inf")


def rise(series: Series, window: int = 3) -> Rise | None:
    """Find the lowest point of a curve and what followed.

    Args:
        series: scalar, shape (n,), lower is better (turn a score round by its sign).
        window: of the rolling median that smooths it; a lone low value is no minimum.

    Returns:
        None for fewer than four finite values.

    Example:
        >>> found = rise(Series.of([1.0, 0.6, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9]))
        >>> (found.best_step, found.onset, found.last)
        (3, 4, 0.8)
    """
    kept = series.finite()
    if len(kept) < LEAST_VALUES:
        return None
    noise = noise_floor(kept)
    smooth = rolling_median(kept, window)
    # the last of equal minima: a curve that rests at its best has not begun to rise
    at = len(smooth) - 1 - int(np.argmin(smooth.values[::-1]))
    best = float(smooth.values[at])
    above = smooth.values[at:] > best + 2 * noise / np.sqrt(window)
    onset = _stays(above)
    return Rise(
        int(smooth.steps[at]), best, None if onset is None else int(smooth.steps[at + onset]), float(np.median(tail(kept).values)), noise
    )


def _stays(flags: np.ndarray) -> int | None:
    """Return the index from which all flags hold to the end, or None where the last does not."""
    if not len(flags) or not flags[-1]:
        return None
    below = np.nonzero(~flags)[0]
    return int(below[-1]) + 1 if len(below) else 0
