"""Turn measurements into the strength of a finding: ramps between "says nothing" and "says all", and how they combine."""

from __future__ import annotations

from math import isnan, log, prod

DECIDED = 0.8  # from this strength on watching alone has decided
OPEN = 0.2  # below it there was nothing to prove
WATCHED = 0.3  # weight of what was watched, once an experiment has spoken


def ramp(value: float, nothing: float, everything: float) -> float:
    """Return how far a positive value lies on the way from one bound to another, on a logarithmic scale, in [0, 1].

    Args:
        value: a ratio; NaN counts as saying nothing.
        nothing: where the strength is 0.
        everything: where it is 1; may be the smaller of the two.

    Example:
        >>> ramp(0.1, 0.01, 1.0)
        0.5
        >>> ramp(1e-5, 1e-3, 1e-4)
        1.0
    """
    if isnan(value):
        return 0.0
    if value <= 0:
        return 1.0 if everything < nothing else 0.0
    if value == float("inf"):
        return 1.0 if everything > nothing else 0.0
    return min(1.0, max(0.0, log(value / nothing) / log(everything / nothing)))


def slope(value: float, nothing: float, everything: float) -> float:
    """Return the same on a linear scale, for shares and levels.

    Example:
        >>> slope(0.75, 0.5, 1.0)
        0.5
    """
    if isnan(value):
        return 0.0
    return min(1.0, max(0.0, (value - nothing) / (everything - nothing)))


def either(*strengths: float) -> float:
    """Combine signs of which each alone speaks for the same: one less the product of what each leaves open.

    Example:
        >>> either(0.5, 0.5)
        0.75
    """
    return 1.0 - prod(1.0 - strength for strength in strengths)


def settled(strength: float, proof: float | None) -> float:
    """Return the strength of a suspicion after an experiment; what watching decided, or never suspected, stays as it is.

    Args:
        strength: by watching.
        proof: how clearly the experiment showed the fault, in [0, 1]; None where it was not done or says nothing.

    Example:
        >>> settled(0.5, 1.0), settled(0.9, 0.0), settled(0.5, None)
        (0.85, 0.9, 0.5)
    """
    if proof is None or strength >= DECIDED or strength < OPEN:
        return strength
    return WATCHED * strength + (1 - WATCHED) * proof
