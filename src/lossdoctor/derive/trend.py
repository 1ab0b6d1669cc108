"""The trend of a series: Theil and Sen's slope, with the interval that Sen gave for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.smooth import blocks

NORMAL_95 = 1.96  # two-sided 95 % point of the standard normal distribution


@dataclass(frozen=True)
class Trend:
    """Hold a slope per step with its 95 % interval.

    Example:
        >>> Trend(-0.1, -0.2, -0.05).falls
        True
    """

    slope: float
    low: float
    high: float

    @property
    def falls(self) -> bool:
        """Tell whether the whole interval lies below zero."""
        return self.high < 0

    @property
    def rises(self) -> bool:
        """Tell whether the whole interval lies above zero."""
        return self.low > 0


def trend(series: Series, count: int = 60) -> Trend:
    """Fit a straight line that outliers do not bend: the median of the slopes of all pairs of block means.

    Source: Sen 1968, Estimates of the regression coefficient based on Kendall's tau.

    Args:
        series: scalar, shape (n,), over steps.
        count: blocks that are averaged first; bounds the cost at count squared pairs.

    Returns:
        Slope per step; zero with an unbounded interval for fewer than three blocks.

    Example:
        >>> trend(Series.of([3.0, 2.0, 1.0, 0.0])).slope
        -1.0
    """
    points = blocks(series, count)
    n = len(points)
    if n < 3:
        return Trend(0.0, -np.inf, np.inf)
    first, second = np.triu_indices(n, k=1)
    slopes = np.sort((points.values[second] - points.values[first]) / (points.steps[second] - points.steps[first]))
    reach = NORMAL_95 * sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, int((len(slopes) + reach) / 2))
    return Trend(float(np.median(slopes)), float(slopes[low]), float(slopes[high]))
