"""The share of a step that is spent waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lossdoctor.core.run import Floats, Series

LEAST_KNOWN = 3  # idle times of a stretch; they are measured now and then only
LEAST_STEPS = 10  # of fewer steps the first, with imports and caches, is most


@dataclass(frozen=True)
class Wait:
    """Hold where the time of the steps goes.

    Args:
        share: waiting over all of a step, in the middle one of the stretches of the run.
        steady: share in the stretch that a quarter of them lie below: of a wait that lasts it is about the same.
        wait_seconds: wait of a step, share times duration.
        step_seconds: mean duration of a step, wait included, validation left out.
        total_seconds: waiting of the whole run.

    Example:
        >>> Wait(0.75, 0.7, 0.003, 0.004, 1.2).speedup
        4.0
    """

    share: float
    steady: float
    wait_seconds: float
    step_seconds: float
    total_seconds: float

    @property
    def speedup(self) -> float:
        """How many times faster the run could be at most if it never waited (Amdahl's law)."""
        return 1.0 / max(1.0 - self.share, 1e-3)


def wait_share(
    wall: Series,
    loader: Series | None,
    idle: Series | None,
    gap: Series | None = None,
    excluded: Sequence[tuple[float, float]] = (),
    stretches: int = 10,
) -> Wait | None:
    """Divide the time that steps wait for data by the time that they take.

    Time in a loader is summed, since a pause once per epoch, or at every fourth batch of four workers, is waiting too; where the
    usual batch, its median against the median step, shows more, that counts, since a busy machine holds up the steps as well. Idle
    time outside of a loader is taken as the median of a stretch, and never above the median gap: a thread that is held up now and
    then looks idle, and most so at the steps at which it is asked. Where both were measured the larger counts, as a loader that
    sleeps is idle.

    Args:
        wall: end of each step, in s on one clock.
        loader: time inside loaders before each step, in s.
        idle: time before each step in which the thread neither computed nor waited for a core, in s; NaN where not measured.
        gap: time before each step outside the model, in s; all of it where left out.
        excluded: (begin, end) of validation passes on the same clock; steps that hold one are left out.
        stretches: into how many parts the run is divided.

    Returns:
        None for fewer than ten steps.

    Example:
        >>> steps = Series.of([0.1 * i for i in range(21)])
        >>> round(wait_share(steps, Series.of([0.05] * 21), None).share, 6)
        0.5
    """
    with np.errstate(invalid="ignore"):  # a damaged clock
        duration = np.diff(wall.values)
    keep = _outside(wall, excluded) & np.isfinite(duration) & (duration > 0)
    if keep.sum() < LEAST_STEPS:
        return None
    loading = np.minimum(np.nan_to_num(_aligned(loader, wall)[1:]), duration)[keep]
    idling = np.minimum(_aligned(idle, wall)[1:], duration)[keep]
    gaps = np.fmin(_aligned(gap, wall)[1:], duration)[keep]
    duration = duration[keep]
    parts = [part for part in np.array_split(np.arange(len(duration)), stretches) if len(part)]
    shares = [_share(duration[part], loading[part], idling[part], gaps[part]) for part in parts]
    waited = sum(share * float(duration[part].sum()) for share, part in zip(shares, parts, strict=True))
    share = float(np.median(shares))
    return Wait(share, float(np.quantile(shares, 0.25)), share * float(duration.mean()), float(duration.mean()), waited)


def _share(duration: Floats, loading: Floats, idling: Floats, gaps: Floats) -> float:
    known = idling[np.isfinite(idling)]
    idle = min(float(np.median(known)), float(np.median(gaps))) if len(known) >= LEAST_KNOWN else 0.0
    usual = max(float(np.median(loading)), idle) / float(np.median(duration))
    return min(1.0, max(float(loading.sum() / duration.sum()), usual))


def _aligned(wait: Series | None, wall: Series) -> Floats:
    values = np.full(len(wall), np.nan)
    if wait is not None:
        _, mine, its = np.intersect1d(wall.steps, wait.steps, return_indices=True)
        values[mine] = wait.values[its]
    return values


def _outside(wall: Series, excluded: Sequence[tuple[float, float]]) -> npt.NDArray[np.bool_]:
    """Tell for every step but the first whether it holds none of the excluded stretches."""
    held = np.zeros(max(0, len(wall) - 1), dtype=bool)
    for begin, end in excluded:
        first = int(np.searchsorted(wall.values[1:], begin, side="right"))
        last = int(np.searchsorted(wall.values[:-1], end, side="left"))
        held[first:last] = True
    return ~held
