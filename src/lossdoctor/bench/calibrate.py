"""Learn from the bench how much the strength of a rule is worth, and write `diagnose/calibration.json`.

Protocol. Every row of the bench gives one pair (strength, was it planted?) for every fault. A row counts as planted for the
slugs that name its condition; it is left out for faults that the planted one explains, because these may truly be there as its
symptoms; it counts against all others, and a healthy row counts against every fault. `diagnose.confidence` fits a rising table
per fault (isotonic regression). Each recipe is held out in turn: tables are fitted on the other recipes and judged on the rows of the
one left out; these figures are reported. The tables that are written come from all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lossdoctor.bench.matrix import Outcome
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.fault import faults
from lossdoctor.diagnose import confidence, engine
from lossdoctor.diagnose.confidence import Table

Pair = tuple[str, float, bool]


@dataclass(frozen=True)
class HeldOut:
    """Hold how tables that never saw a recipe do on its rows.

    Args:
        recipe: the recipe left out of the fit.
        brier: mean squared distance of the probability from what was planted; 0.25 is what a coin gives.
        present: pairs with a probability that reads as present.
        right: how many of these were planted.
        planted: pairs that were planted, of faults that have a table.

    Example:
        >>> HeldOut("digits", 0.01, 10, 10, 10).recipe
        'digits'
    """

    recipe: str
    brier: float
    present: int
    right: int
    planted: int


def pairs(outcomes: Iterable[Outcome]) -> Iterator[Pair]:
    """Yield (slug, strength, planted) of every fault on every row; faults that the planted one explains are left out.

    Example:
        >>> from lossdoctor.bench.matrix import Row
        >>> list(pairs([Outcome(Row("digits", "healthy", ("healthy",), "", 0, ""), "healthy", strengths={"lr-too-high": 0.1})]))
        [('lr-too-high', 0.1, False)]
    """
    for outcome in outcomes:
        accepted = outcome.row.accepted
        explained = {slug for name in accepted if name in faults() for slug in faults()[name].explains}
        for slug, strength in outcome.strengths.items():
            if slug in accepted or slug not in explained:
                yield slug, strength, slug in accepted and outcome.row.planted != HEALTHY


def held_out(outcomes: Sequence[Outcome]) -> list[HeldOut]:
    """Hold each recipe out in turn: fit on the others, judge on its rows."""
    recipes = list(dict.fromkeys(outcome.row.recipe for outcome in outcomes))
    if len(recipes) < 2:
        return []
    return [_hold_out(recipe, outcomes) for recipe in recipes]


def _hold_out(recipe: str, outcomes: Sequence[Outcome]) -> HeldOut:
    fitted = confidence.calibrate(pairs(outcome for outcome in outcomes if outcome.row.recipe != recipe))
    judged = [pair for pair in pairs(outcome for outcome in outcomes if outcome.row.recipe == recipe) if pair[0] in fitted]
    said = np.array([_probability(fitted, slug, strength) for slug, strength, _ in judged])
    planted = np.array([there for _, _, there in judged], dtype=bool)
    present = said >= engine.PRESENT
    brier = float(np.mean((said - planted) ** 2)) if len(judged) else float("nan")
    return HeldOut(recipe, brier, int(present.sum()), int((present & planted).sum()), int(planted.sum()))


def _probability(fitted: Mapping[str, Table], slug: str, strength: float) -> float:
    strengths, probabilities = zip(*fitted[slug], strict=True)
    return float(np.interp(strength, strengths, probabilities))


def calibrate(outcomes: Sequence[Outcome]) -> dict[str, Table]:
    """Fit the tables on all rows that gave a report."""
    return confidence.calibrate(pairs(outcome for outcome in outcomes if outcome.strengths))
