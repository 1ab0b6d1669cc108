"""How much the memory of a process grew while it trained."""

from __future__ import annotations

import numpy as np

from lossdoctor.core.run import Series

WARM = 3  # steps in which memory grows in any run
MUCH, OF_ALL = 32e6, 0.05  # bytes, and share of what was held at the start: libraries that are imported late take as much; starting values


def growth(memory: Series | None) -> tuple[float, float]:
    """Return how much memory grew from after the first steps to its largest, in bytes, and what was held after the first steps.

    Example:
        >>> growth(Series.of([100.0, 300.0, 300.0, 300.0, 300.0, 300.0, 800.0]))
        (500.0, 300.0)
    """
    if memory is None:
        return 0.0, 0.0
    known = memory.finite()
    warm = known.values[known.steps >= WARM]
    if len(warm) < 2:
        return 0.0, 0.0
    early = float(np.median(warm[:WARM]))
    return max(0.0, float(warm.max()) - early), early


def grew_much(memory: Series | None) -> bool:
    """Tell whether memory grew by so much that it matters.

    Example:
        >>> grew_much(Series.of([4e8] * 10)), grew_much(Series.of([4e8] * 6 + [9e8] * 4))
        (False, True)
    """
    grown, early = growth(memory)
    return grown >= max(MUCH, OF_ALL * early)
