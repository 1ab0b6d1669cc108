"""Smooth a series: means of consecutive blocks, and medians over windows that a lone spike cannot move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lossdoctor.core.run import Floats, Series
from lossdoctor.derive.remember import remembered

CHUNK = 65_536  # rows of windows held at once, so that a million values need megabytes and not gigabytes


@remembered
def blocks(series: Series, count: int = 60) -> Series:
    """Average a scalar series over consecutive blocks of (nearly) equal length; values that are not finite are left out.

    The mean and not the median, because the losses of small batches are skewed: their median lies far from their mean.

    Args:
        series: scalar, shape (n,).
        count: how many blocks at most; fewer where there are fewer values.

    Returns:
        One mean per block, at the last step of the block; empty where nothing is finite.

    Example:
        >>> blocks(Series.of([1.0, 3.0, 5.0, 7.0]), 2).values.tolist()
        [2.0, 6.0]
    """
    kept = series.finite()
    if not len(kept):
        return kept
    count = min(count, len(kept))
    edges = np.linspace(0, len(kept), count + 1).astype(np.int64)
    with np.errstate(over="ignore"):
        means = np.add.reduceat(kept.values, edges[:-1]) / np.diff(edges)
    return Series(kept.steps[edges[1:] - 1], means)


def rolling_median(series: Series, window: int = 5) -> Series:
    """Replace every value by the median of the values around it; at the ends by the median of those that are there.

    Args:
        series: scalar, shape (n,); values that are not finite are left out.
        window: how many values, odd; an even number counts as the next odd one.

    Example:
        >>> rolling_median(Series.of([1.0, 1.0, 99.0, 1.0, 1.0]), 3).values.tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    kept = series.finite()
    half = min(window // 2, max(0, (len(kept) - 1) // 2))
    if half < 1:
        return kept
    padding = np.full(half, np.nan)
    padded = np.concatenate([padding, kept.values, padding])
    return Series(kept.steps, over_windows(padded, 2 * half + 1, medians))


def over_windows(values: Floats, window: int, reduce: Callable[[Floats], Floats]) -> Floats:
    """Apply a function of rows to every window of consecutive values, some windows at a time.

    Args:
        values: shape (n,).
        window: length of a window, at most n.
        reduce: from shape (m, window) to shape (m,).

    Returns:
        Shape (n - window + 1,).

    Example:
        >>> over_windows(np.array([1.0, 2.0, 6.0]), 2, lambda rows: rows.sum(axis=1)).tolist()
        [3.0, 8.0]
    """
    windows = np.lib.stride_tricks.sliding_window_view(values, window)
    return np.concatenate([reduce(windows[at : at + CHUNK]) for at in range(0, len(windows), CHUNK)])


def medians(rows: Floats) -> Floats:
    """Return the median of each row; NaN in a row means that nothing is there.

    Example:
        >>> medians(np.array([[1.0, 2.0, 9.0], [np.nan, 4.0, 4.0]])).tolist()
        [2.0, 4.0]
    """
    found = np.median(rows, axis=1)  # ten times as fast as nanmedian, which only the rows at the ends need
    holed = np.isnan(found)
    if holed.any():
        found[holed] = np.nanmedian(rows[holed], axis=1)
    return np.asarray(found, dtype=np.float64)


def tail(series: Series, share: float = 0.1, least: int = 3) -> Series:
    """Keep the last share of a series, and at least so many values where there are as many.

    Example:
        >>> tail(Series.of([5.0, 4.0, 3.0, 2.0]), 0.5, 1).values.tolist()
        [3.0, 2.0]
    """
    count = min(len(series), max(least, round(share * len(series))))
    start = len(series) - count
    return Series(series.steps[start:], series.values[start:], series.names)


def value_at(series: Series, step: int) -> float:
    """Return the last value at or before a step; the first value where the step lies before them all.

    Raises:
        IndexError: where the series is empty.

    Example:
        >>> value_at(Series.of([3.0, 2.0, 1.0], [0, 10, 20]), 15)
        2.0
    """
    at = int(np.searchsorted(series.steps, step, side="right")) - 1
    return float(series.values[max(at, 0)])
