"""What the experiment `rate` showed: the first steps again, with the rate whose first step changes weights by a hundredth."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.run import Training


@dataclass(frozen=True)
class Rerun:
    """Hold the outcome of the other rate.

    Args:
        factor: the other rate over the run's own.
        gain: share of the reference by which the loss ended lower under the other rate; 1 where only that ended in a number.
        evidence: what was seen.

    Example:
        >>> Rerun(0.01, 0.8, Evidence("rate", (0, 150), "0.4 against 2.3", "no difference")).gain
        0.8
    """

    factor: float
    gain: float
    evidence: Evidence


def rerun(training: Training, reference: float | None) -> Rerun | None:
    """Return what the other rate did; None where it was not tried, or ended in no number either.

    Args:
        training: with the experiment `rate`.
        reference: what guessing gives, or the start; the experiment's own start where None.

    Example:
        >>> rerun(Training(), 2.3) is None
        True
    """
    if not training.has("rate"):
        return None
    facts = training.experiment("rate")
    factor, own, other = (_number(facts.get(name)) for name in ("factor", "own_end", "other_end"))
    unit = reference or _number(facts.get("start"))
    if factor is None or other is None or not unit:
        return None
    steps = int(_number(facts.get("steps")) or 0)
    seen = f"{other:.4g} after {steps} steps with {factor:.2g} times the rate, {'no number' if own is None else f'{own:.4g}'} with its own"
    gain = 1.0 if own is None else (own - other) / unit
    return Rerun(factor, gain, Evidence("rate", (0, steps), seen, "no difference"))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
