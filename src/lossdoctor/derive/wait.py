"""The share of a step that is spent waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Series

LEAST_STEPS = 10  # of fewer steps the first, with imports and caches, is most


@dataclass(frozen=True)
class Wait:
    """Hold where the time of the steps goes.

    Args:
        share: waiting over all of a step, in the middle one of ten stretches of the run.
        low, high: lowest and highest share of the ten stretches.
        wait_seconds: mean wait of a step.
        step_seconds: mean duration of a step, wait included, validation left out.
        total_seconds: waiting of the whole run.

    Example:
        >>> Wait(0.75, 0.7, 0.8, 0.003, 0.004, 1.2).speedup
        4.0
    """

    share: float
    low: float
    high: float
    wait_seconds: float
    step_seconds: float
    total_seconds: float

    @property
    def speedup(self) -> float:
        """How many times faster the run could be at most if it never waited (Amdahl's law)."""
        return 1.0 / max(1.0 - self.share, 1e-3)


def wait_share(wall: Series, waits: Sequence[Series], excluded: Sequence[tuple[float, float]] = (), stretches: int = 10) -> Wait | None:
    """Divide the time that steps wait for data by the time that they take.

    Args:
        wall: end of each step, in s on one clock.
        waits: kinds of waiting in s, one value per step each; where they overlap the longest counts, so that nothing is
            counted twice. NaN means not measured.
        excluded: (begin, end) of validation passes on the same clock; steps that hold one are left out.
        stretches: into how many parts the run is divided; sums, not medians, within each, since a pause once per epoch is
            waiting too.

    Returns:
        None for fewer than ten steps.

    Example:
        >>> steps = Series.of([0.1 * i for i in range(21)])
        >>> round(wait_share(steps, [Series.of([0.05] * 21)]).share, 6)
        0.5
    """
    duration, waited = _per_step(wall, waits)
    keep = _outside(wall, excluded) & np.isfinite(duration) & (duration > 0)
    if keep.sum() < LEAST_STEPS:
        return None
    duration, waited = duration[keep], np.minimum(waited[keep], duration[keep])
    parts = [chosen for chosen in np.array_split(np.arange(len(duration)), stretches) if len(chosen)]
    shares = [float(waited[part].sum() / duration[part].sum()) for part in parts]
    return Wait(float(np.median(shares)), min(shares), max(shares), float(waited.mean()), float(duration.mean()), float(waited.sum()))


def _per_step(wall: Series, waits: Sequence[Series]) -> tuple[Floats, Floats]:
    """Return duration and wait of every step but the first, whose beginning is not known."""
    duration = np.diff(wall.values)
    aligned = [_aligned(wait, wall) for wait in waits]
    longest = np.max(aligned, axis=0) if aligned else np.zeros(len(wall))
    return duration, longest[1:]


def _aligned(wait: Series, wall: Series) -> Floats:
    values = np.zeros(len(wall))
    _, mine, its = np.intersect1d(wall.steps, wait.steps, return_indices=True)
    values[mine] = np.nan_to_num(wait.values[its])
    return values


def _outside(wall: Series, excluded: Sequence[tuple[float, float]]) -> np.ndarray:
    """Tell for every step but the first whether it holds none of the excluded stretches."""
    held = np.zeros(max(0, len(wall) - 1), dtype=bool)
    for begin, end in excluded:
        first = int(np.searchsorted(wall.values[1:], begin, side="right"))
        last = int(np.searchsorted(wall.values[:-1], end, side="left"))
        held[first:last] = True
    return ~held
