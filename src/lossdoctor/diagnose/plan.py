"""Which experiment comes next: the cheapest that could settle what is open, with the parameters that it takes from the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lossdoctor.core.diagnosis import UNDETERMINED, Diagnosis
from lossdoctor.core.fault import faults
from lossdoctor.core.run import Training
from lossdoctor.derive.dead import dead_start, dead_throughout
from lossdoctor.derive.level import expected_level

# Cheapest first: what each took on small problems, one busy core
# (.02, .02, .2, .1, .01, .1, .1, .1, .1, .03, .01 to 2, .5, .1, .05, .3 to 5, 0 or 3, 1, 0 to 4, 1 to 3, 0 to 4, 1 to 5, 1 to 5, .3, .1 s).
ORDER = (
    "linear",
    "flow",
    "objective",
    "guess",
    "axes",
    "padding",
    "mixing",
    "tokens",
    "stress",
    "standardise",
    "prepared",
    "held_out",
    "answers",
    "norms",
    "memorise",
    "terms",
    "rate",
    "baseline",
    "augmentation",
    "through_time",
    "unseen",
    "widen",
    "backend",
    "layout",
    "throughput",
)
# Share of the time that is left which the long ones may take, so that what would follow them gets some (starting values).
SHARES = {"memorise": 0.6, "unseen": 0.6, "baseline": 0.7}
# Done whatever is suspected, for what they find leaves no trace in the curves.
ALWAYS = (
    "linear",
    "flow",
    "objective",
    "axes",
    "padding",
    "mixing",
    "tokens",
    "stress",
    "prepared",
    "held_out",
    "answers",
    "norms",
    "terms",
)
# What `check` does: all that could settle what is open. What a machine gives is `lossdoctor machine`'s question.
CHECKS = ("look", "loader", *(name for name in ORDER if name != "throughput"), "accumulation", "precision", "memory", "rate_range")


def next_experiment(diagnosis: Diagnosis, training: Training, full: bool = False, asked: Sequence[str] = ()) -> str | None:
    """Return the name of the next experiment; None where nothing is open that one could settle.

    Args:
        diagnosis: of the run as far as it is known.
        training: the training that was captured.
        full: do all of them, whatever is open.
        asked: those that were done or tried.
    """
    if full:
        return next((name for name in ORDER if name not in asked), None)
    always = {*ALWAYS, "guess"} if expected_level(training) is None else set(ALWAYS)  # no known loss tells what guessing gives
    groups = [always, *_settling(diagnosis)]
    return next((name for wanted in groups for name in ORDER if name in wanted and name not in asked), None)


def _settling(diagnosis: Diagnosis) -> list[set[str]]:
    """Return what would settle each suspicion, the most probable first; then all that any fault asks for, where nothing is found."""
    settles = {slug: set(fault.decides_with) for slug, fault in faults().items()}
    open_ones = sorted((each for each in diagnosis.findings if each.status == "suspected"), key=lambda each: -each.probability)
    groups = [settles.get(finding.slug, set()) for finding in open_ones]
    if diagnosis.verdict == UNDETERMINED:
        groups.append({name for names in settles.values() for name in names})
    return groups


def parameters(training: Training) -> dict[str, Any]:
    """Return what the experiments need to know of the script: its optimiser and the norm that it clips to.

    Example:
        >>> parameters(Training(facts={"optimizer": {"name": "SGD", "groups": [{"lr": 0.1, "parameters": 2}]}}))
        {'optimizer': 'SGD', 'settings': {'lr': 0.1}, 'fresh': False}
    """
    optimizer = training.fact("optimizer") or {}
    groups = optimizer.get("groups") or [{}]
    found: dict[str, Any] = {
        "optimizer": optimizer.get("name", ""),
        "settings": {name: value for name, value in groups[0].items() if name != "parameters"},
    }
    if "initial_lr" in found["settings"]:  # what a scheduler started from is what it multiplies
        found["settings"].pop("initial_lr")
    rates = training.signals.get("lr")
    if rates is not None and len(rates):
        found["settings"]["lr"] = rates.first
    found["fresh"] = dead_start(training) or dead_throughout(training)
    limits = training.signals.get("clip_limit")
    if limits is not None and len(limits.finite()):
        found["clip"] = limits.finite().first
    return found
