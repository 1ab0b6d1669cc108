"""Sudden drops of a curve behind a plateau."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Series
from lossdoctor.derive.curves import Shape, shape

# A plateau is at least a fifth of the curve, and moves by less than this share of the drop behind it (starting values).
LENGTH, STILL = 0.2, 0.45
SUDDEN = 2  # parts of 40 that a drop takes at most
LASTS = 0.7  # of the drop that is still there at the end


@dataclass(frozen=True)
class Drop:
    """Hold a drop: the steps of the plateau before it, where it falls, and the levels on both sides.

    Example:
        >>> Drop(0, 90, 100, 2.0, 1.0).share
        0.5
    """

    plateau: int
    begins: int
    ends: int
    before: float
    after: float

    @property
    def share(self) -> float:
        """The share of the level before that was lost."""
        return (self.before - self.after) / abs(self.before) if self.before else 0.0


def largest_drop(loss: Series, least: float = 0.12) -> Drop | None:
    """Find the largest sudden drop behind a plateau, one that lasts.

    Args:
        loss: scalar, shape (n,).
        least: the share of the level before that a drop must take.

    Example:
        >>> found = largest_drop(Series.of([2.3] * 40 + [1.0] * 40))
        >>> (found.before, found.after)
        (2.3, 1.0)
    """
    found = shape(loss)
    if found is None or len(found.means) < 10:
        return None
    length = max(4, round(LENGTH * len(found.means)))
    drops = [drop for at in range(length, len(found.means) - 1) if (drop := _at(found, at, length, least)) is not None]
    return max(drops, key=lambda drop: drop.before - drop.after, default=None)


def _at(found: Shape, at: int, length: int, least: float) -> Drop | None:
    """Judge a drop that begins with part `at`."""
    means: Floats = found.means
    before, after = means[at - length : at], means[at + SUDDEN - 1 : at + SUDDEN - 1 + max(2, length // 2)]
    if len(after) < 2:
        return None
    high, low = float(np.mean(before[-max(2, length // 2) :])), float(np.mean(after))
    size = high - low
    moves = float(before.max() - before.min())
    clear = size > least * abs(high) and size > 4.0 * found.error
    if not clear or moves > STILL * size or float(means[-1]) > high - LASTS * size:
        return None
    return Drop(found.ends[at - length], found.ends[at - 1], found.ends[min(at + SUDDEN, len(means)) - 1], high, low)


def falls_with(series: Series, drop: Drop) -> float:
    """Return the share of its level that another series loses over the same steps; 0 where it does not cover them.

    Args:
        series: scalar, e.g. the validation loss or the rate.
        drop: a drop of the loss.

    Example:
        >>> falls_with(Series.of([1.0] * 50 + [0.1] * 50), Drop(0, 49, 55, 2.0, 1.0))
        0.9
    """
    kept = series.finite()
    before = kept.between(drop.plateau, drop.begins + 1)
    width = drop.ends - drop.begins
    after = kept.between(drop.ends, drop.ends + max(2 * width, (drop.begins - drop.plateau) // 2) + 1)
    if not len(before) or not len(after):
        return 0.0
    high, low = float(np.median(before.values[-max(3, len(before) // 2) :])), float(np.median(after.values))
    return (high - low) / abs(high) if high else 0.0
