"""Treatments that no fault has yet, with what they cure planted in the recipes: measured without a rule that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lossdoctor.bench.conditions import Condition, condition, suite
from lossdoctor.core.fault import Plant, Treatment, faults


@dataclass(frozen=True)
class Cure:
    """Hold a treatment and the plants that it should cure.

    Args:
        treatment: with its parameters.
        plants: source edits.

    Example:
        >>> sorted(cures())
        ['set_option']
    """

    treatment: Treatment
    plants: tuple[Plant, ...]

    @property
    def condition(self) -> Condition:
        """What the bench plants; no verdict names it."""
        return Condition(self.treatment.name, self.plants, ())


_CURES = (
    Cure(
        Treatment("set_option", {"option": "eps", "value": 1e-8}),
        (Plant("middle", "optimiser", r"(AdamW?\(.*)\)$", r"\1, eps=10.0)", kinds=("tokens", "sequences")),),
    ),
)


def cures() -> dict[str, Cure]:
    """Return the cures of treatments that no fault has, by the treatment's name."""
    named = {fault.treatment.name for fault in faults().values() if fault.treatment is not None}
    return {cure.treatment.name: cure for cure in _CURES if cure.treatment.name not in named}


def chosen(names: Sequence[str]) -> list[Condition]:
    """Return the conditions of the suite `confirm`: those named, by fault or by treatment, or all.

    Example:
        >>> [each.name for each in chosen(["set_option", "causal-leak"])]
        ['set_option', 'causal-leak']
    """
    known = cures()
    if names:
        return [known[name].condition if name in known else condition(name) for name in names]
    return [*suite("confirm"), *(cure.condition for cure in known.values())]
