"""Spans of time on a host and its devices: how long something was busy, what was hidden behind something else, what was waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Span = tuple[float, float]  # when it began and when it ended, on one clock


def union(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap or touch; in order of time. A span that ends before it begins counts as none.

    Example:
        >>> union([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5)])
        [(0.0, 1.5), (2.0, 3.0)]
    """
    joined: list[Span] = []
    for began, ended in sorted((began, ended) for began, ended in spans if ended > began):
        if joined and began <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((began, ended))
    return joined


def busy_seconds(spans: Iterable[Span]) -> float:
    """Return for how long at least one of the spans lasted.

    Example:
        >>> busy_seconds([(0.0, 1.0), (0.5, 1.5), (2.0, 3.0)])
        2.5
    """
    return float(sum(ended - began for began, ended in union(spans)))


def exposed_seconds(spans: Iterable[Span], behind: Iterable[Span]) -> float:
    """Return for how long something lasted while nothing else did: of a copy or a reduction, what no computing hides.

    Args:
        spans: what may be hidden.
        behind: what may hide it.

    Example:
        >>> exposed_seconds([(0.0, 2.0)], [(1.0, 5.0)])
        1.0
    """
    first, second = list(spans), list(behind)
    return busy_seconds([*first, *second]) - busy_seconds(second)


def without_waits(step: float, waited: float, busy: float | None) -> float:
    """Return what a step would take if the host never waited for its device, at least.

    The host goes on at once, and the device works off what it is given: the longer of the two is the step.

    Args:
        step: seconds of a step as it is.
        waited: seconds of it in which the host stood still for a value of the device.
        busy: seconds of it in which the device computed; the host alone decides where it is not known.

    Example:
        >>> without_waits(0.010, 0.006, 0.007)
        0.007
    """
    return min(step, max(step - waited, busy or 0.0))


def lateness(ends: Sequence[Sequence[float]]) -> np.ndarray:
    """Return for each rank by how much it came later than the first of them, over the steps that all have.

    Args:
        ends: by rank, when it came to the meeting point of each step.

    Returns:
        Shape (ranks, steps), seconds.

    Example:
        >>> lateness([[1.0, 2.0], [1.5, 2.0]]).tolist()
        [[0.0, 0.0], [0.5, 0.0]]
    """
    steps = min((len(each) for each in ends), default=0)
    times = np.array([list(each[:steps]) for each in ends], dtype=np.float64).reshape(len(ends), steps)
    return times - times.min(0) if len(ends) else times
