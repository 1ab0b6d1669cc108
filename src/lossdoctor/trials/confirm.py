"""Confirm a diagnosis: try the treatment of each cause, and say of each whether it cures the run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import Diagnosis, Finding
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.fault import Fault, faults
from lossdoctor.core.run import Run
from lossdoctor.trials.arms import Plan
from lossdoctor.trials.cost import allowance, check_room, seconds_of, steps_within
from lossdoctor.trials.parameters import NoTreatment, fitted
from lossdoctor.trials.results import write_trials
from lossdoctor.trials.trial import Pairs, Question, Trial, Value, as_dict, run_trial


@dataclass(frozen=True)
class Candidate:
    """Hold a finding with its treatment, fitted to the run."""

    finding: Finding
    fault: Fault
    value: Value

    @property
    def signal(self) -> str:
        """The signal that the treatment should move."""
        return self.fault.treatment.moves if self.fault.treatment else "loss"


@dataclass
class Confirmer:
    """Try treatments on a recorded run.

    Args:
        folder: of the run.
        run: what was recorded.
        limit: seconds for all trials; None for twice the run's time and twenty seconds for each cause.
        say: tells the user how it goes.
    """

    folder: Path
    run: Run
    limit: float | None = None
    say: Callable[[str], None] = lambda words: None
    untreated: dict[str, str] = field(default_factory=dict)
    workers: int = 1

    def candidates(self, findings: Sequence[Finding]) -> list[Candidate]:
        """Return those findings whose treatment can be tried; `untreated` tells why of the others."""
        found = []
        for finding in findings:
            fault = faults()[finding.slug]
            try:
                if fault.treatment is None:
                    raise NoTreatment("it has no treatment that a script can be given from outside")
                found.append(Candidate(finding, fault, fitted(fault.treatment, finding, self.run.trainings[finding.training])))
            except NoTreatment as reason:
                self.untreated[finding.slug] = str(reason)
        return found

    def confirm(self, diagnosis: Diagnosis) -> dict[str, Any]:
        """Try the treatment of every cause of a diagnosis, keep the trials in the run's folder, and return them by slug."""
        check_room()
        if not (self.folder / "private.json").is_file():
            raise LossdoctorError(f"{self.folder} holds no private.json, which tells how the script was started; run it again", status=2)
        chosen = self.candidates(causes(diagnosis))
        trials: dict[str, Any] = {}
        for candidate in chosen:
            trial = self.ask(candidate, ())
            trials[candidate.finding.slug] = self.told(candidate, trial)
        write_trials(self.folder, trials, None)
        return trials

    def ask(self, candidate: Candidate, base: Sequence[Value]) -> Trial:
        """Try one treatment on top of others."""
        training = self.run.trainings[candidate.finding.training]
        seconds = allowance(self.run, training) if self.limit is None else self.limit
        question = Question(candidate.finding.slug, tuple(base), (candidate.value,), candidate.signal)
        steps = steps_within(training, seconds)
        if not steps:
            needed = seconds_of(training, min(training.steps, 20))
            return Trial(question, reason=f"it would take {needed:.0f} s, and {seconds:.0f} s are allowed")
        self.say(f"trial of {candidate.value['name']} for {question.slug}: {steps} steps, about {seconds_of(training, steps):.0f} s")
        before = sum(part.steps for earlier in self.run.trainings[: training.index] for part in (earlier.roles or [earlier]))
        plan = Plan(self.folder, training.index, steps, before, time.monotonic() + 2 * seconds, {})
        return run_trial(Pairs(plan, self.run, question, self.workers), self.say)

    @staticmethod
    def told(candidate: Candidate, trial: Trial) -> dict[str, Any]:
        """Return a trial as the report holds it."""
        safety = candidate.fault.treatment.safety if candidate.fault.treatment else ""
        return as_dict(trial, trial.question.added, safety)


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Return the present errors and warnings that nothing else explains."""
    return [each for each in diagnosis.present if each.severity != "advice" and each.explained_by is None]


def cores() -> int:
    """Return how many repetitions may run at once."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
