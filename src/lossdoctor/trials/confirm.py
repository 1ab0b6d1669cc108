"""Confirm a diagnosis: try the treatment of each cause, and say of each whether it cures the run."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Diagnosis, Finding
from lossdoctor.core.fault import Fault, Treatment, faults
from lossdoctor.core.run import Run, Series
from lossdoctor.trials.again import check_script
from lossdoctor.trials.arms import Plan
from lossdoctor.trials.compare import CONFIRMED, REFUTED
from lossdoctor.trials.cost import LEAST_STEPS, allowance, check_room, seconds_of, steps_within
from lossdoctor.trials.parameters import NoTreatment, fitted
from lossdoctor.trials.results import write_trials
from lossdoctor.trials.treatments import usual
from lossdoctor.trials.trial import Pairs, Question, Trial, Value, as_dict, run_trial
from lossdoctor.trials.under import STILLS

ENOUGH_STEPS = 200  # that are compared whatever they cost, where nobody sets a limit: the start may be most of a short run
# A suspicion that is as likely as not is worth a trial, and so many of them where nothing is present (starting values).
LIKELY, MOST_SUSPICIONS = 0.5, 2
_TIME = ("wait_share",)  # signals of where the time goes; the others are of learning, and treatments of the one hide none of the other


@dataclass(frozen=True)
class Candidate:
    """Hold a finding with its treatment, fitted to the run."""

    finding: Finding
    fault: Fault
    value: Value

    @property
    def signal(self) -> str:
        """The signal that the treatment should move."""
        return self.treatment.moves

    @property
    def treatment(self) -> Treatment:
        """What the treatment should do."""
        return self.fault.treatment or usual(self.value["name"])


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

    def confirm(self, diagnosis: Diagnosis) -> Confirmation:
        """Try the treatment of every cause of a diagnosis, then of what shows only under treatment, and keep what came of it."""
        check_room()
        check_script(self.folder, self.say)
        found, chosen = Confirmation(self), self.candidates(causes(diagnosis))
        if not causes(diagnosis):  # what is suspected, a trial can settle
            chosen = self.candidates(suspicions(diagnosis)[:MOST_SUSPICIONS])
        if not chosen:
            self.say("nothing that was found has a treatment that can be tried from outside the script")
        elif len(chosen) > 1:
            total = sum(self.laid_out(candidate)[2] for candidate in chosen)
            self.say(f"{len(chosen)} causes to try, about {total:.0f} s, and what they leave open after that")
        for candidate in chosen:
            found.add(candidate, self.ask(candidate, (), look=True))
        found.reduce({finding.slug for finding in diagnosis.present})
        write_trials(self.folder, found.as_dict())
        return found

    def ask(self, candidate: Candidate, base: Sequence[Value], edits: Mapping[str, str] | None = None, *, look: bool = False) -> Trial:
        """Try one treatment on top of others.

        Args:
            candidate: whose treatment is tried.
            base: treatments of both arms.
            edits: edited sources in the place of the treatment.
            look: whether experiments are made under the treatment, to diagnose the run again.
        """
        training = self.run.trainings[candidate.finding.training]
        up = candidate.treatment.direction == "up"
        question = Question(candidate.finding.slug, tuple(base), (candidate.value,), candidate.signal, bool(edits), up)
        steps, allowed, expected = self.laid_out(candidate)
        if not steps:
            needed = seconds_of(training, min(training.steps, LEAST_STEPS))
            return Trial(question, reason=f"it would take {needed:.0f} s, and {allowed:.0f} s are allowed")
        what = "the edited script" if edits else candidate.value["name"]
        self.say(f"trial of {what} for {question.slug}: {steps} steps, about {expected:.0f} s")
        before = sum(part.steps for earlier in self.run.trainings[: training.index] for part in (earlier.roles or [earlier]))
        until = time.monotonic() + (self.limit or 2 * max(allowed, expected))  # a machine may be busier than it was
        counts = training.signals.get("backwards", Series.of([])).finite().values
        parts = max(1, int(np.median(counts))) if len(counts) else 1
        plan = Plan(self.folder, training.index, steps, before, until, edits or {}, parts)
        return run_trial(Pairs(plan, self.run, question, self.workers, look=look), self.say)

    def laid_out(self, candidate: Candidate) -> tuple[int, float, float]:
        """Return how many steps a trial compares, the seconds that it is allowed, and about how many it takes."""
        training = self.run.trainings[candidate.finding.training]
        if self.limit is not None:
            steps = steps_within(training, self.limit)
            return steps, self.limit, seconds_of(training, steps)
        allowed = allowance(self.run, training)
        steps = max(min(training.steps, ENOUGH_STEPS), steps_within(training, allowed))
        return steps, allowed, seconds_of(training, steps)

    def under(self, trial: Trial) -> list[Finding]:
        """Diagnose the first treated repetition of a trial, and return its causes, then the likeliest suspicion."""
        from lossdoctor.diagnose import diagnose

        names = {value["name"] for value in (*trial.question.base, *trial.question.added)}
        if trial.treated is None or names & STILLS:
            return []
        found = diagnose(trial.treated)
        return [*causes(found), *suspicions(found)[:1]]


class Confirmation:
    """Gather the trials of a run, and reduce their treatments to the smallest set that restores it.

    Args:
        confirmer: asks.
    """

    def __init__(self, confirmer: Confirmer) -> None:
        self.confirmer = confirmer
        self.trials: dict[str, tuple[Candidate, Trial]] = {}
        self.needed: list[Candidate] = []
        self.surfaced: dict[str, tuple[Finding, list[str]]] = {}

    def add(self, candidate: Candidate, trial: Trial) -> None:
        """Keep a trial; a later one of the same fault replaces it."""
        self.trials[candidate.finding.slug] = candidate, trial

    def reduce(self, known: set[str]) -> None:
        """Choose greedily by effect, look what shows under the treatments that are chosen, and drop what is not needed beside the others.

        Args:
            known: slugs that need not be looked at again.
        """
        waiting = sorted((pair for pair in self.trials.values() if pair[1].verdict == CONFIRMED), key=_size, reverse=True)
        while waiting:
            candidate, trial = waiting.pop(0)
            base = tuple(self._values(candidate))
            if base and base != trial.question.base:  # what showed under just these was tried under them
                trial = self.confirmer.ask(candidate, base, look=True)
            if trial.verdict != CONFIRMED:
                continue
            self.needed.append(candidate)
            for finding in self.confirmer.under(trial):
                if finding.slug not in known:
                    known.add(finding.slug)
                    waiting += self._surface(finding)
        self._leave_one_out()

    def _surface(self, finding: Finding) -> list[tuple[Candidate, Trial]]:
        """Try what showed under the treatments that are chosen; a suspicion is told only where its trial confirms it."""
        under = [each.value["name"] for each in self.needed]
        tried = [(hidden, self.confirmer.ask(hidden, self._values(hidden), look=True)) for hidden in self.confirmer.candidates([finding])]
        if finding.status != "suspected" or any(trial.verdict == CONFIRMED for _, trial in tried):
            self.surfaced[finding.slug] = finding, under
            for pair in tried:
                self.add(*pair)
            return tried
        self.confirmer.untreated.pop(finding.slug, None)  # it is not told, so neither is why it was not tried
        return []

    def _leave_one_out(self) -> None:
        """Drop each treatment, but the last that was chosen, that moves nothing beside the others."""
        for candidate in self.needed[:-1]:
            if self._beside(candidate) and self.confirmer.ask(candidate, self._values(candidate)).verdict == REFUTED:
                self.needed.remove(candidate)

    def _beside(self, candidate: Candidate) -> list[Candidate]:
        """Return the chosen treatments that may hide what another one does: those that move learning, or those that move time."""
        return [each for each in self.needed if each is not candidate and (each.signal in _TIME) == (candidate.signal in _TIME)]

    def _values(self, candidate: Candidate) -> list[Value]:
        return [each.value for each in self._beside(candidate)]

    def as_dict(self) -> dict[str, Any]:
        """Return what is kept in the run's folder."""
        needed = [each.finding.slug for each in self.needed]
        trials = {
            slug: {**as_dict(trial, safety_of(candidate)), "needed": slug in needed} for slug, (candidate, trial) in self.trials.items()
        }
        surfaced = {slug: {"finding": dataclasses.asdict(finding), "under": under} for slug, (finding, under) in self.surfaced.items()}
        return {"trials": trials, "needed": needed, "surfaced": surfaced, "untreated": self.confirmer.untreated}


def _size(pair: tuple[Candidate, Trial]) -> float:
    return pair[1].end.get("effect", 0.0)


def safety_of(candidate: Candidate) -> str:
    """Return the safety grade of a candidate's treatment."""
    return candidate.treatment.safety


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Return the present errors and warnings that nothing else explains."""
    return [each for each in diagnosis.present if each.severity != "advice" and each.explained_by is None]


def suspicions(diagnosis: Diagnosis) -> list[Finding]:
    """Return the suspected errors and warnings that nothing else explains and that have a treatment, likeliest first."""
    found = [each for each in diagnosis.findings if each.status == "suspected" and each.severity != "advice" and not each.explained_by]
    treated = [each for each in found if each.probability >= LIKELY and faults()[each.slug].treatment is not None]
    return sorted(treated, key=lambda each: -each.probability)


def cores() -> int:
    """Return how many repetitions may run at once."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
