"""What a fault file holds, and the folder of faults as a registry.

A fault is one module `faults/<family>/<slug with underscores>.py` that defines `FAULT`. Its docstring has the fixed
headings of `HEADINGS`. From it come the documentation page, `lossdoctor explain`, the contract tests, the bench rows.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from lossdoctor.core.diagnosis import BiggerMachine, Evidence, Severity
from lossdoctor.core.errors import UsageError
from lossdoctor.core.run import Location, Training

HEADINGS = ("What you see", "Why it happens", "How it is told apart", "What to do", "When this is wrong")
Places = Literal["data", "model", "loss", "optimiser", "loop", "validation"]
Level = Literal["mild", "middle", "severe"]
Kind = Literal["sick", "healthy", "look-alike", "known miss"]


@dataclass(frozen=True)
class Detection:
    """Hold what a rule saw when it holds its fault for possible.

    Args:
        strength: in [0, 1], rises with how clearly the measurement decides; turned into a probability by the bench's
            calibration. Below 0.3 nothing is said.
        evidence: what was seen, most decisive first.
        fix: what to do in this run, one or two sentences; the fault's own `fix` where empty.
        where: place in the user's source, where known.
        severity: lower than the fault's own, where this run deserves less.
        gain: what mending it would save: `time`, a share of a step's (of its validation, where that is meant, over the whole run's);
            `memory`, bytes. Empty where that is not known.

    Example:
        >>> Detection(0.9, (Evidence("stale", (1, 99), 1.0, 0.0),)).strength
        0.9
    """

    strength: float
    evidence: tuple[Evidence, ...]
    fix: str = ""
    where: Location | None = None
    severity: Severity | None = None
    gain: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """Hold a tiny literal training and what the rule must say of it.

    Args:
        kind: `sick` (present), `healthy` and `look-alike` (not present), `known miss` (sick, and the rule does not see it).
        training: literal signals and facts.
        note: what it shows, a few words; unique within the fault.

    Example:
        >>> Example("healthy", Training(), "nothing recorded").kind
        'healthy'
    """

    kind: Kind
    training: Training
    note: str


@dataclass(frozen=True)
class Plant:
    """Hold a source edit, or a knob, that makes a recipe sick.

    Args:
        level: severity of the planted fault.
        place: the marked place of the recipe that is edited.
        old: regular expression that must match exactly once within that place (all recipes mark places alike).
        new: replacement, may refer to groups.
        kinds: recipe kinds that it applies to; empty for all.
        also: further edits that belong to the same plant, as (place, old, new).

    Example:
        >>> Plant("middle", "loop", r"optimizer.zero_grad\\(\\)", "pass").level
        'middle'
    """

    level: Level
    place: Places
    old: str
    new: str
    kinds: tuple[str, ...] = ()
    also: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Treatment:
    """Hold a change at the seams that should cure the fault, as a name with parameters.

    Args:
        name: interpreted by `trials/`, e.g. `clear_gradients`, `scale_rate`.
        parameters: its arguments, plain values.
        moves: the signal that it should move.
        direction: `down` or `up`.
        safety: `safe` (the result cannot get worse), `changes-results`, or `advice-only`.

    Example:
        >>> Treatment("clear_gradients", {}, moves="loss", direction="down").safety
        'changes-results'
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    moves: str = "loss"
    direction: str = "down"
    safety: str = "changes-results"


@dataclass(frozen=True)
class Fault:
    """Describe a known cause of failure.

    Args:
        needs: names of the signals, facts or experiments without which the rule answers `unknown`.
        detect: pure function of a training; a `Detection`, or None where the fault is absent. It may raise
            `SignalMissing` for what `needs` cannot say.
        explains: slugs of faults and symptoms that this one accounts for when both are present.
        fix: what to do, one or two sentences.
        decides_with: names of experiments that would settle a suspicion, cheapest first.

    Example:
        >>> faults()["zero-grad-missing"].code
        'LOP001'
    """

    code: str
    slug: str
    title: str
    detect: Callable[[Training], Detection | None]
    needs: tuple[str, ...]
    fix: str
    severity: Severity = "error"
    maturity: str = "preview"
    explains: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    plants: tuple[Plant, ...] = ()
    treatment: Treatment | None = None
    bigger_machine: BiggerMachine = field(default_factory=lambda: BiggerMachine("no", ""))
    decides_with: tuple[str, ...] = ()
    page: str = ""

    @property
    def family(self) -> str:
        """The three letters of the code."""
        return self.code[:3]

    def section(self, heading: str) -> str:
        """Return the text under one of the fixed headings of the fault's page."""
        return sections(self.page).get(heading, "")


def sections(page: str) -> dict[str, str]:
    """Split a fault's docstring into its headed sections."""
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.cleandoc(page), flags=re.MULTILINE)
    return {heading.strip(): text.strip() for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def faults() -> dict[str, Fault]:
    """Load every fault of the folder, by slug, in the order of codes. A file that cannot be loaded raises.

    Example:
        >>> "lr-too-high" in faults()
        True
    """
    package = importlib.import_module("lossdoctor.faults")
    found: list[Fault] = []
    for module_info in pkgutil.walk_packages(package.__path__, "lossdoctor.faults."):
        module = importlib.import_module(module_info.name)
        if not module_info.ispkg:
            found.append(_complete(module.FAULT, module.__doc__ or ""))
    return {fault.slug: fault for fault in sorted(found, key=lambda fault: fault.code)}


def _complete(fault: Fault, page: str) -> Fault:
    object.__setattr__(fault, "page", page)
    return fault


def find_fault(name: str) -> Fault:
    """Return the fault of a code or slug; raise `UsageError` naming the nearest where there is none."""
    import difflib

    known = faults()
    for fault in known.values():
        if name.lower() in (fault.slug, fault.code.lower()):
            return fault
    names = [*known, *(fault.code for fault in known.values())]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; `lossdoctor faults` lists them"
    raise UsageError(f"no fault is called {name!r}{hint}")
