"""The pace of a run and how it compares with another's: seconds of a step, rows per second, and whether the losses follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Training

LEAST = 5  # steps that are timed
# Steps of which a mean is taken: what comes every few steps (the turn of a slow worker) counts. Of the means the one that a quarter
# lies below: what disturbs the machine for a moment only makes steps longer.
BLOCK, QUIET = 8, 0.25
SAME, FOLLOWS = 1e-5, 0.05  # relative distance of losses: rounding in another order; less than one run differs from another


@dataclass(frozen=True)
class Pace:
    """Hold how fast a run went.

    Args:
        step_seconds: lower quartile over blocks of the mean of their steps, validation excluded.
        rows: mean first dimension of the model's input.
        losses: of all steps.
    """

    step_seconds: float
    rows: float
    losses: Floats

    @property
    def row_seconds(self) -> float:
        """Seconds for each row."""
        return self.step_seconds / self.rows


def pace(training: Training, warm: int, queued: Sequence[float] = ()) -> Pace | None:
    """Return the pace of a training after its first steps; None where too few follow.

    Args:
        warm: steps that are left out at the start; a third of them all where there are few.
        queued: at the end of each step, how long the thread had waited for a core so far: not counted, since other work took it.

    Example:
        >>> from lossdoctor.core.run import Series
        >>> signals = {"wall": Series.of([0.1 * i for i in range(40)]), "loss": Series.of([1.0] * 40)}
        >>> round(pace(Training(signals=signals), 20).step_seconds, 6)
        0.1
    """
    wall = training.series("wall").values
    first = min(warm, len(wall) // 3)
    seconds = np.diff(wall)
    if len(queued) == len(wall):
        seconds = np.maximum(seconds - np.diff(queued), 0.0)
    for row in training.rows.get("validation", []):
        began, ended = row.get("began", math.nan), row.get("began", math.nan) + row.get("seconds", math.nan)
        seconds[(wall[1:] > began) & (wall[:-1] < ended)] = math.nan
    kept = seconds[first:][np.isfinite(seconds[first:])]
    if len(kept) < LEAST:
        return None
    rows = training.signals.get("batch_rows")
    mean_rows = float(np.nanmean(rows.values)) if rows is not None and np.isfinite(rows.values).any() else 1.0
    blocks = np.array_split(kept, max(1, len(kept) // BLOCK))
    return Pace(float(np.quantile([block.mean() for block in blocks], QUIET)), mean_rows, training.series("loss").values)


def agreement(control: Floats, losses: Floats) -> str:
    """Say whether losses are the `same` as a control's step by step, `follow` it, or `differ`.

    Example:
        >>> agreement(np.array([2.0, 1.0, 0.5]), np.array([2.0, 1.0, 0.5]))
        'same'
    """
    steps = min(len(control), len(losses))
    if not steps or not np.isfinite(losses[:steps]).all():
        return "differ"
    scale = float(np.abs(control[:steps]).mean()) or 1.0
    if float(np.abs(control[:steps] - losses[:steps]).max()) <= SAME * scale:
        return "same"
    half = steps // 2
    distance = abs(float(control[half:steps].mean()) - float(losses[half:steps].mean()))
    return "follow" if distance <= FOLLOWS * scale else "differ"


def interval(factors: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of factors, and a 95 % interval around it from their spread; without bounds for one factor.

    Source: Student's t on the logarithms.

    Example:
        >>> interval([2.0, 2.0])
        (2.0, 2.0, 2.0)
    """
    logs = np.log(factors)
    mean = float(logs.mean())
    if len(factors) < 2:
        return math.exp(mean), 0.0, math.inf
    from scipy.stats import t

    half = float(t.ppf(0.975, len(logs) - 1)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
