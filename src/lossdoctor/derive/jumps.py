"""Jumps of a series: steps at which it leaves its own recent past by far more than its noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Integers, Series
from lossdoctor.derive.noise import TO_SIGMA
from lossdoctor.derive.smooth import medians, over_windows

DEVIATIONS = 8.0  # starting value: 8 robust deviations; skewed batch losses reach 5 without a cause
CEILING = 1e300  # stands for a value that is not finite, so that differences of such values stay numbers
EARLIEST = 2  # values that must lie before a jump


@dataclass(frozen=True)
class Jump:
    """Hold a rise of a series.

    Args:
        step: where it begins.
        before: median of the values before it.
        peak: the highest value of the jump; inf where one is not finite.
        after: median of the values behind it; NaN where the series ends in the jump.
        recovered: whether it came back to what it was before.

    Example:
        >>> Jump(10, 1.0, 50.0, 1.1, True).peak
        50.0
    """

    step: int
    before: float
    peak: float
    after: float
    recovered: bool


def jumps(series: Series, window: int = 20, deviations: float = DEVIATIONS, share: float = 0.5) -> list[Jump]:
    """Find where a series rises far above the median of the values before it.

    Args:
        series: scalar, shape (n,); a value that is not finite counts as infinitely high.
        window: how many earlier and later values are looked at.
        deviations: how many robust standard deviations of the earlier values it must rise.
        share: and by which share of their median, so that a still curve does not jump at every tremor.

    Returns:
        Jumps in the order of steps; high values at most two steps apart are one jump.

    Example:
        >>> [(j.step, j.recovered) for j in jumps(Series.of([1.0] * 9 + [9.0] + [1.0] * 9))]
        [(9, True)]
    """
    values = np.where(np.isfinite(series.values), np.minimum(series.values, CEILING), CEILING)
    if len(values) <= EARLIEST:
        return []
    before, limits = _limits(values, window, deviations, share)
    high = np.nonzero(values > limits)[0]
    if not len(high):
        return []
    groups = np.split(high, np.nonzero(np.diff(high) > 2)[0] + 1)
    return [_jump(series, values, window, group, float(before[group[0]]), float(limits[group[0]])) for group in groups]


def _limits(values: Floats, window: int, deviations: float, share: float) -> tuple[Floats, Floats]:
    """Return for each value the median of the values before it, and the limit above which it is a jump."""
    earlier = np.concatenate([np.full(window - EARLIEST, np.nan), values[:-1]])
    before = over_windows(earlier, window, medians)
    deviation = over_windows(earlier, window, _deviations)
    limits = before + np.maximum(deviations * deviation, share * np.abs(before))
    unknown = np.full(EARLIEST, np.inf)
    return np.concatenate([unknown, before]), np.concatenate([unknown, limits])


def _deviations(rows: Floats) -> Floats:
    return TO_SIGMA * medians(np.abs(rows - medians(rows)[:, None]))


def _jump(series: Series, values: Floats, window: int, group: Integers, before: float, limit: float) -> Jump:
    start, end = int(group[0]), int(group[-1]) + 1
    later = values[end : end + window]
    after = float(np.median(later)) if len(later) else float("nan")
    peak = float(values[start:end].max())
    return Jump(int(series.steps[start]), before, peak if peak < CEILING else float("inf"), after, bool(after <= limit))
