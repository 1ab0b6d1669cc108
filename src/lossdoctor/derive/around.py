"""The level of a series around given steps: what lies before and after each, as far as half way to its neighbours."""

from __future__ import annotations

import numpy as np

from lossdoctor.core.run import Floats, Integers, Series


def around(series: Series, steps: Integers) -> Floats:
    """Average a series around each step, from half way to the step before to half way to the one after; at least its two neighbours.

    Args:
        series: scalar, shape (n,), finite.
        steps: shape (m,), increasing.

    Returns:
        Shape (m,); NaN where the series is empty.

    Example:
        >>> around(Series.of([4.0, 3.0, 2.0, 1.0]), np.array([1, 2])).tolist()
        [2.5, 1.5]
    """
    if not len(series):
        return np.full(len(steps), np.nan)
    sums = np.concatenate([[0.0], np.cumsum(series.values)])
    middles = (steps[1:] + steps[:-1]) / 2.0
    low = np.concatenate([[steps[0] - (middles[0] - steps[0] if len(middles) else 0.0)], middles]) if len(steps) else middles
    high = np.concatenate([middles, [steps[-1] + (steps[-1] - middles[-1] if len(middles) else 0.0)]]) if len(steps) else middles
    at = np.searchsorted(series.steps, steps, side="right") - 1
    first = np.minimum(np.searchsorted(series.steps, low, side="left"), np.maximum(at, 0))
    last = np.maximum(np.searchsorted(series.steps, high, side="right"), np.minimum(at + 2, len(series)))
    last = np.maximum(last, first + 1)
    return np.asarray((sums[last] - sums[first]) / (last - first), dtype=np.float64)
