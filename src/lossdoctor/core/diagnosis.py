"""A diagnosis: the findings of all faults on one run, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lossdoctor.core.run import Location

Status = Literal["present", "suspected", "absent", "unknown", "broke"]
Severity = Literal["error", "warning", "advice"]

HEALTHY = "healthy"
UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Evidence:
    """Hold one thing that was seen: which signal, when, what, against what expectation.

    Args:
        signal: signal name.
        steps: first and last step that it was seen at.
        seen: the value with its unit, as text or number.
        expected: what a healthy run shows, as text or number.
        note: one sentence, where the numbers do not speak for themselves.

    Example:
        >>> Evidence("loss", (0, 9), 2.3, "below 2.3").seen
        2.3
    """

    signal: str
    steps: tuple[int, int]
    seen: float | str
    expected: float | str
    note: str = ""


@dataclass(frozen=True)
class BiggerMachine:
    """Say whether a bigger machine would help against a fault: no, yes, speed-only or unknown; and why.

    Example:
        >>> BiggerMachine("no", "the loop is wrong on any machine").helps
        'no'
    """

    helps: str
    why: str


@dataclass
class Finding:
    """Hold what one fault says of one run.

    Args:
        probability: calibrated probability in [0, 1] that the fault is there; 0 where it is absent or unknown.
        explains: slugs of present findings that this one accounts for.
        explained_by: slug of the finding that accounts for this one, or None.
        missing: for `unknown`, the signal that is missing and how to get it; for `broke`, our own error.
        training: index of the training that shows it.
        gain: what mending it would save: `time` as a share of a step's, `memory` in bytes; empty where that is not known.

    Example:
        >>> Finding("LOP001", "zero-grad-missing", "Gradients pile up", "LOP").status
        'absent'
    """

    code: str
    slug: str
    title: str
    family: str
    status: Status = "absent"
    severity: Severity = "error"
    probability: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    explains: tuple[str, ...] = ()
    explained_by: str | None = None
    fix: str = ""
    where: Location | None = None
    bigger_machine: BiggerMachine = field(default_factory=lambda: BiggerMachine("no", ""))
    missing: str = ""
    training: int = 0
    confirmed: str | None = None
    trial: Mapping[str, Any] | None = None
    gain: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Diagnosis:
    """Hold all findings of a run, in the order of the report, and the verdict.

    Args:
        verdict: slug of the first present error or warning that nothing explains, or `healthy`, or `undetermined`.
        findings: present ones first (independent causes, what they explain, advice), then suspected, unknown, broke, absent.
        vitals: figures of the run: steps, first_loss, expected_first_loss, last_loss, wait_share, step_seconds, ...
        bigger_machine: the answer for the whole run, with its conditions.
        next_step: the cheapest command that would settle what is open; empty where nothing is.
        curve: the loss, thinned, for pictures: pairs (step, loss).

    Example:
        >>> Diagnosis().healthy
        True
    """

    verdict: str = HEALTHY
    findings: list[Finding] = field(default_factory=list)
    vitals: dict[str, Any] = field(default_factory=dict)
    bigger_machine: BiggerMachine = field(default_factory=lambda: BiggerMachine("unknown", ""))
    conditions: list[dict[str, Any]] = field(default_factory=list)
    experiments: list[dict[str, Any]] = field(default_factory=list)
    next_step: str = ""
    notes: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    trainings: list[dict[str, Any]] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Tell whether the verdict is `healthy`."""
        return self.verdict == HEALTHY

    @property
    def present(self) -> list[Finding]:
        """The findings that are present, in the order of the report."""
        return [finding for finding in self.findings if finding.status == "present"]

    def finding(self, slug: str) -> Finding | None:
        """Return the finding of a fault by its slug, or None."""
        return next((finding for finding in self.findings if finding.slug == slug), None)
