"""Which conditions the bench plants: the suites, the plants of each, and which verdicts name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lossdoctor.bench.edit import Recipe
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.errors import UsageError
from lossdoctor.core.fault import Level, Plant, faults, find_fault

# The ten conditions that the project starts from, each with the slug whose plants make it (field guide, section 0).
TEN = {
    HEALTHY: HEALTHY,
    "lr-too-high": "lr-too-high",
    "lr-too-low": "lr-too-low",
    "labels-meaningless": "labels-meaningless",
    "zero-grad-missing": "zero-grad-missing",
    "inputs-unscaled": "inputs-unscaled",
    "dead-units": "dead-units",
    "overfitting": "too-few-examples",
    "model-too-small": "model-too-small",
    "input-bottleneck": "input-bottleneck",
}
# What watching alone decides (the first form of the main job).
WATCHING = (
    HEALTHY,
    "zero-grad-missing",
    "step-missing",
    "optimizer-lacks-parameters",
    "softmax-before-cross-entropy",
    "loss-broadcast",
    "eval-mode-in-training",
    "train-mode-in-eval",
    "loss-not-finite",
    "inputs-not-finite",
    "input-bottleneck",
    "lr-too-high",
    "lr-too-low",
    "inputs-unscaled",
    "overfitting",
    "too-few-examples",
)
# Two faults at once, the first of which does not explain the second (the shared pairs P-01 and P-05 among them).
PAIRS = (
    ("zero-grad-missing", "input-bottleneck"),
    ("lr-too-low", "labels-meaningless"),
    ("lr-too-low", "input-bottleneck"),
    ("labels-meaningless", "input-bottleneck"),
    ("inputs-unscaled", "input-bottleneck"),
    ("zero-grad-missing", "labels-meaningless"),
    ("model-too-small", "input-bottleneck"),
    ("dead-units", "too-few-examples"),
)
SUITES = ("ten", "watching", "all", "pairs", "confirm", "sets", "speed")


@dataclass(frozen=True)
class Condition:
    """Hold a condition that the bench plants.

    Args:
        name: what the table calls it.
        plants: source edits; empty for `healthy`.
        accepted: verdicts that name it.
        beside: a second condition that is planted with it, where two faults are to be named at once.

    Example:
        >>> condition("healthy").accepted
        ('healthy',)
    """

    name: str
    plants: tuple[Plant, ...]
    accepted: tuple[str, ...]
    beside: Condition | None = None

    def plant_for(self, recipe: Recipe, level: Level) -> Plant | None:
        """Return the first plant of a level that is meant for a recipe, or None."""
        return next((plant for plant in self.plants if plant.level == level and recipe.takes(plant)), None)

    def plants_for(self, recipe: Recipe, level: Level) -> tuple[Plant, ...]:
        """Return the plants of a level for a recipe, one for each condition; empty where any is not meant for it."""
        found = [each.plant_for(recipe, level) for each in (self, self.beside) if each is not None]
        return tuple(plant for plant in found if plant is not None) if None not in found else ()


def condition(name: str, planted_by: str | None = None) -> Condition:
    """Build the condition of a slug.

    Args:
        name: a fault's slug or code, or `healthy`.
        planted_by: slug whose plants make it, where that is another.

    Raises:
        UsageError: where no fault has that name.
    """
    if name == HEALTHY:
        return Condition(HEALTHY, (), (HEALTHY,))
    fault = find_fault(planted_by or name)
    called = name if planted_by else fault.slug
    return Condition(called, fault.plants, _accepted(called, fault.slug))


def pair(one: str, other: str) -> Condition:
    """Build the condition of two faults at once.

    Example:
        >>> pair("lr-too-low", "input-bottleneck").name
        'lr-too-low + input-bottleneck'
    """
    first = condition(one)
    return replace(first, name=f"{one} + {other}", beside=condition(other))


def _accepted(name: str, slug: str) -> tuple[str, ...]:
    # Planted by cutting the data, both names are right: too few examples is the cause and overfitting its symptom.
    if slug == "too-few-examples":
        return ("too-few-examples", "overfitting")
    return (name,)


def suite(name: str) -> list[Condition]:
    """Return the conditions of a suite: `ten`, `watching`, `pairs`, `sets`, `all` that have plants, or `confirm`, that have a treatment.

    Example:
        >>> len(suite("ten"))
        10
    """
    if name == "ten":
        return [condition(name, planted_by) for name, planted_by in TEN.items()]
    if name == "watching":
        return [condition(slug) for slug in WATCHING if slug == HEALTHY or slug in faults()]
    if name == "pairs":
        return [condition(HEALTHY), *(pair(one, other) for one, other in PAIRS)]
    if name == "sets":
        return [pair(one, other) for one, other in PAIRS]
    if name == "all":
        return [condition(HEALTHY), *(condition(slug) for slug, fault in faults().items() if fault.plants)]
    if name == "confirm":
        treated = [slug for slug, fault in faults().items() if fault.plants and fault.treatment and fault.treatment.safety != "advice-only"]
        return [condition(slug) for slug in (HEALTHY, *treated)]
    raise UsageError(f"no suite is called {name!r}; there are: {', '.join(SUITES)}")


def chosen(suite_name: str, names: Sequence[str]) -> list[Condition]:
    """Return the named conditions, or those of a suite where none is named."""
    return [condition(name) for name in names] if names else suite(suite_name)
