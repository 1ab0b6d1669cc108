"""The smallest set of treatments: greedy by effect, what shows under treatment, and what is left out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.fault import Treatment, faults
from lossdoctor.core.run import Row, Run, Series, Training
from lossdoctor.trials.compare import CONFIRMED, REFUTED
from lossdoctor.trials.confirm import Candidate, Confirmation, Confirmer
from lossdoctor.trials.trial import Question, Trial


def candidate(slug: str) -> Candidate:
    fault = faults()[slug]
    treatment = fault.treatment or Treatment("placebo")
    return Candidate(
        Finding(fault.code, slug, fault.title, fault.family, status="present"), fault, {"name": treatment.name, "parameters": {}}
    )


class Told(Confirmer):
    """Answers from a table: which treatments help under which others."""

    def __init__(self, helps: Mapping[tuple[str, tuple[str, ...]], float], shows: Mapping[tuple[str, ...], str] = {}) -> None:
        super().__init__(Path(), Run())
        self.helps, self.shows, self.asked = helps, shows, list[tuple[str, tuple[str, ...]]]()

    def candidates(self, findings: Sequence[Finding]) -> list[Candidate]:
        return [candidate(finding.slug) for finding in findings]

    def ask(
        self, candidate: Candidate, base: Sequence[Mapping[str, Any]], edits: Mapping[str, str] | None = None, *, look: bool = False
    ) -> Trial:
        key = candidate.finding.slug, tuple(value["name"] for value in base)
        self.asked.append(key)
        effect = self.helps.get(key, 0.0)
        question = Question(candidate.finding.slug, tuple(base), (candidate.value,), candidate.signal)
        return Trial(question, CONFIRMED if effect else REFUTED, end={"effect": effect})

    def under(self, trial: Trial) -> list[Finding]:
        names = tuple(value["name"] for value in (*trial.question.base, *trial.question.added))
        return [candidate(self.shows[names]).finding] if names in self.shows else []


def needed(told: Told, *slugs: str) -> list[str]:
    found = Confirmation(told)
    for slug in slugs:
        found.add(candidate(slug), told.ask(candidate(slug), ()))
    found.reduce(set(slugs))
    return [each.finding.slug for each in found.needed]


def test_a_second_treatment_that_does_nothing_beside_the_first_is_not_needed() -> None:
    told = Told({("zero-grad-missing", ()): 0.9, ("lr-too-high", ()): 0.5})
    assert needed(told, "zero-grad-missing", "lr-too-high") == ["zero-grad-missing"]
    assert told.asked[-1] == ("lr-too-high", ("clear_gradients",))


def test_what_showed_under_a_treatment_is_tried_under_it_once() -> None:
    helps = {("dead-units", ()): 0.9, ("too-few-examples", ("revive",)): 0.7, ("dead-units", ("more_rows",)): 0.9}
    told = Told(helps, {("revive",): "too-few-examples"})
    assert needed(told, "dead-units") == ["dead-units", "too-few-examples"]
    assert told.asked.count(("too-few-examples", ("revive",))) == 1


def test_a_treatment_that_another_makes_needless_is_left_out() -> None:
    helps = {("zero-grad-missing", ()): 0.9, ("inputs-unscaled", ()): 0.5, ("inputs-unscaled", ("clear_gradients",)): 0.4}
    told = Told(helps)
    assert needed(told, "zero-grad-missing", "inputs-unscaled") == ["inputs-unscaled"]


def test_treatments_of_time_and_of_learning_hide_nothing_of_each_other() -> None:
    told = Told({("zero-grad-missing", ()): 0.9, ("input-bottleneck", ()): 0.8})
    assert needed(told, "zero-grad-missing", "input-bottleneck") == ["zero-grad-missing", "input-bottleneck"]
    assert len(told.asked) == 2


def test_a_run_that_was_ended_early_is_not_diagnosed_again() -> None:
    value = {"name": "stop_early", "parameters": {"steps": 40}}
    frozen = Training(signals={"loss": Series.of([1.0] * 200)}, rows={"coverage": [Row(9, {"held": 4, "changed": 0.0})]})
    trial = Trial(Question("overfitting", (), (value,), "validation"), CONFIRMED, treated=Run(trainings=[frozen]))
    assert Confirmer(Path(), Run()).under(trial) == []
