"""Break a small network in ten ways and let the doctor name each."""

from __future__ import annotations

from collections.abc import Sequence

from lossdoctor.bench.conditions import TEN, WATCHING, Condition, condition
from lossdoctor.bench.edit import Recipe, recipes
from lossdoctor.bench.matrix import Row, rows
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.fault import faults

# Half of the recipe's own: a minute is long enough to look at a demonstration.
EPOCHS = 10


def conditions(recipe: Recipe) -> list[Condition]:
    """Choose ten conditions: those that the project starts from as far as there are rules for them, then others."""
    first = [condition(name, planted_by) for name, planted_by in TEN.items() if name == HEALTHY or name in faults()]
    known = {slug for each in first for slug in each.accepted}
    further = [condition(slug) for slug in WATCHING if slug in faults() and slug not in known]
    return [each for each in first + further if each.name == HEALTHY or each.plant_for(recipe, "middle") is not None][:10]


def demo_rows(seed: int = 0) -> Sequence[Row]:
    """Lay out the rows of the demonstration: ten conditions of the digits recipe, shortened."""
    recipe = recipes()["digits"]
    return rows([recipe.with_constant("EPOCHS", EPOCHS)], conditions(recipe), ("middle",), (seed,))
