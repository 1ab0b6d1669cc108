"""Plateaus of a series: stretches over which it does not move by more than a tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.smooth import blocks


@dataclass(frozen=True)
class Plateau:
    """Hold a flat stretch: first and last step, the mean level, and its share of the recorded steps.

    Example:
        >>> Plateau(0, 99, 2.3, 0.5).level
        2.3
    """

    start: int
    stop: int
    level: float
    share: float


def plateaus(series: Series, tolerance: float, share: float = 0.2, count: int = 60) -> list[Plateau]:
    """Find the stretches whose block means stay within a tolerance of one another, longest possible from the left.

    Args:
        series: scalar, shape (n,).
        tolerance: how far the block means of a stretch may lie apart, in the unit of the series.
        share: shortest stretch that counts, as a share of all blocks.
        count: blocks that the series is averaged to.

    Returns:
        Stretches in the order of steps, not overlapping.

    Example:
        >>> [p.level for p in plateaus(Series.of([2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0]), 0.1)]
        [2.0, 0.0]
    """
    points = blocks(series, count)
    starts = np.concatenate([points.steps[:1], points.steps[:-1] + 1])
    found: list[Plateau] = []
    at = 0
    while at < len(points):
        end = _flat_until(points, at, tolerance)
        length = (end - at) / len(points)
        if end - at >= 2 and length >= share:
            found.append(Plateau(int(starts[at]), int(points.steps[end - 1]), float(points.values[at:end].mean()), length))
            at = end
        else:
            at += 1
    return found


def _flat_until(points: Series, at: int, tolerance: float) -> int:
    """Return the index behind the last block that keeps the stretch from `at` within the tolerance."""
    low = np.minimum.accumulate(points.values[at:])
    high = np.maximum.accumulate(points.values[at:])
    beyond = np.nonzero(high - low > tolerance)[0]
    return at + int(beyond[0]) if len(beyond) else len(points)
