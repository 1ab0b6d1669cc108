"""Trials by pairs, the smallest set of treatments, what is kept of them and shown, on made repetitions."""

from __future__ import annotations

import base64
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lossdoctor.core.diagnosis import Diagnosis, Evidence, Finding
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.fault import faults
from lossdoctor.core.run import Row, Run, Series, Training
from lossdoctor.core.store import load_run
from lossdoctor.report.html import page
from lossdoctor.report.json import from_json, to_json
from lossdoctor.report.terminal import text
from lossdoctor.trials import cost, trial
from lossdoctor.trials.arms import Arm, Plan
from lossdoctor.trials.confirm import Candidate, Confirmation, Confirmer
from lossdoctor.trials.results import attach, read_trials, write_trials
from lossdoctor.trials.trial import Pairs, Question, Trial, run_trial
from lossdoctor.trials.under import WorkUp

STEPS = 400
Make = Callable[[tuple[str, ...], int], float]


def learnt(end: float, steps: int = STEPS, treated: tuple[str, ...] = (), first: str = "aa") -> Run:
    """A run whose loss comes down to `end` halfway."""
    loss = [2.3 + (end - 2.3) * min(1.0, 2 * i / STEPS) for i in range(steps)]
    signals = {"loss": Series.of(loss), "wall": Series.of([5 + 0.01 * i for i in range(steps)])}
    rows = {"row_hashes": [Row(0, {"hashes": [first]})]}
    return Run(facts={"treated": list(treated)}, trainings=[Training(signals=signals, rows=rows)])


def plan(folder: Path = Path()) -> Plan:
    return Plan(folder, 0, STEPS, 0, time.monotonic() + 60, {})


def make_arms(monkeypatch: pytest.MonkeyPatch, end: Make, first: Callable[[int], str] = lambda number: "aa") -> list[tuple[Any, ...]]:
    """Let repetitions end at a loss by the names of their treatments and their number; return which were run."""
    ran: list[tuple[Any, ...]] = []

    def run_arm(plan: Plan, treatments: Any, number: int, edited: bool = False, work: Any = None) -> Arm:
        names = tuple(value["name"] for value in treatments)
        ran.append((names, number, plan.steps))
        return Arm(learnt(end(names, number), plan.steps, names, first(number)), 0)

    monkeypatch.setattr(trial, "run_arm", run_arm)
    return ran


def ask(added: str = "clip", base: tuple[str, ...] = ()) -> Question:
    return Question("a-fault", tuple({"name": name} for name in base), ({"name": added},), "loss")


def test_a_clear_effect_is_confirmed_by_two_pairs_and_the_watched_run_is_a_control(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = make_arms(monkeypatch, lambda names, number: 0.05 if names else 2.2)
    found = run_trial(Pairs(plan(), learnt(2.2), ask()))
    assert found.verdict == "confirmed"
    assert [(names, number) for names, number, _ in ran] == [(("clip",), 0), (("clip",), 1), ((), 1)]
    assert found.end["treated"] == pytest.approx(0.05)


def test_further_pairs_take_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = make_arms(monkeypatch, lambda names, number: 0.05 if names else 2.2)
    found = run_trial(Pairs(plan(), learnt(2.2), ask()))
    assert ran[0][2] == STEPS
    assert ran[1][2] == found.steps < STEPS
    assert {pair["effect"] > 0.3 for pair in found.pairs} == {True}


def test_a_run_that_begins_otherwise_is_no_control(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = make_arms(monkeypatch, lambda names, number: 0.05 if names else 2.2)
    watched = learnt(2.2, first="bb")
    watched.trainings[0].signals["loss"] = Series.of([1.0] * STEPS)
    run_trial(Pairs(plan(), watched, ask()))
    assert ((), 0, STEPS) in ran


def test_arms_that_are_alike_refute(monkeypatch: pytest.MonkeyPatch) -> None:
    make_arms(monkeypatch, lambda names, number: 1.0)
    assert run_trial(Pairs(plan(), learnt(1.0), ask())).verdict == "refuted"


def test_an_effect_that_comes_and_goes_is_unclear_after_four_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    make_arms(monkeypatch, lambda names, number: (0.1 if number % 2 else 2.2) if names else 1.0)
    found = run_trial(Pairs(plan(), learnt(1.0), ask()))
    assert (found.verdict, len(found.pairs)) == ("unclear", 4)


def test_a_treatment_that_found_nothing_to_change_refutes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "run_arm", lambda *rest: Arm(learnt(1.0), 0))
    found = run_trial(Pairs(plan(), learnt(1.0), ask()))
    assert found.verdict == "unclear"
    assert "found nothing to change: clip" in found.reason


def test_an_arm_that_was_cut_short_is_compared_at_its_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_arm(plan: Plan, treatments: Any, number: int, edited: bool = False, work: Any = None) -> Arm:
        names = tuple(value["name"] for value in treatments)
        steps = 100 if names else plan.steps
        return Arm(learnt(0.1, steps, names), 0, 1.0, "the repetition ran out of time" if names else "", cut=bool(names))

    monkeypatch.setattr(trial, "run_arm", run_arm)
    found = run_trial(Pairs(plan(), learnt(0.1), ask()))
    # Alike as far as both went, which tells nothing of the rest.
    assert (found.verdict, found.steps) == ("unclear", 100)
    assert found.pairs[0]["effect"] == 0.0
    assert found.reason == "the time was up after 100 of 400 steps, which show no effect yet"
    monkeypatch.setattr(trial, "run_arm", lambda *rest: Arm(learnt(0.1, 5, ("clip",)), 0, 1.0, "", cut=True))
    assert run_trial(Pairs(plan(), learnt(0.1), ask())).reason == "the repetition ran out of time after 5 steps"


def test_a_repetition_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "run_arm", lambda *rest: Arm(None, 0, 1.0, "the repetition ran out of time"))
    found = run_trial(Pairs(plan(), learnt(1.0), ask()))
    assert (found.verdict, found.reason) == ("unclear", "treated: the repetition ran out of time")


# -- several faults ---------------------------------------------------------------------------------------------------------


def candidate(slug: str) -> Candidate:
    fault = faults()[slug]
    return Candidate(Finding(fault.code, slug, fault.title, fault.family, status="present"), fault, {"name": slug, "parameters": {}})


class Asked(Confirmer):
    """Answer by the set of treated faults: the effect of each beside the others."""

    def __init__(self, effect: Callable[[str, frozenset[str]], float]) -> None:
        super().__init__(Path(), Run())
        self.effect = effect

    def ask(self, candidate: Candidate, base: Any, edits: Any = None, *, look: bool = False) -> Trial:
        effect = self.effect(candidate.finding.slug, frozenset(value["name"] for value in base))
        verdict = "confirmed" if effect > 0.1 else "refuted"
        return Trial(Question(candidate.finding.slug, tuple(base), (candidate.value,), "loss"), verdict, end={"effect": effect})


def smallest(effect: Callable[[str, frozenset[str]], float], *slugs: str) -> list[str]:
    found = Confirmation(Asked(effect))
    for slug in slugs:
        found.add(candidate(slug), found.confirmer.ask(candidate(slug), ()))
    found.reduce(set(slugs))
    return [each.finding.slug for each in found.needed]


def test_two_independent_faults_are_both_needed() -> None:
    assert smallest(lambda slug, base: 0.5, "zero-grad-missing", "dead-units") == ["zero-grad-missing", "dead-units"]


def test_what_another_treatment_does_already_is_dropped() -> None:
    same = lambda slug, base: 0.0 if base else 0.9 if slug == "dead-units" else 0.5  # noqa: E731
    assert smallest(same, "lr-too-high", "dead-units") == ["dead-units"]


def test_the_first_is_dropped_where_the_second_does_it_all() -> None:
    def effect(slug: str, base: frozenset[str]) -> float:
        if slug == "lr-too-high":  # the largest alone, nothing beside the other
            return 0.9 if not base else 0.0
        return 0.5

    assert smallest(effect, "lr-too-high", "dead-units") == ["dead-units"]


def test_treatments_of_time_and_of_learning_do_not_hide_each_other() -> None:
    assert smallest(lambda slug, base: 0.0 if base else 0.5, "zero-grad-missing", "input-bottleneck") == [
        "zero-grad-missing",
        "input-bottleneck",
    ]


def test_a_fault_that_shows_only_under_treatment_is_tried_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(lambda slug, base: 0.5)
    hidden = candidate("overfitting")
    monkeypatch.setattr(asked, "under", lambda trial: [hidden.finding] if trial.question.slug == "dead-units" else [])
    monkeypatch.setattr(asked, "candidates", lambda findings: [hidden])
    found = Confirmation(asked)
    found.add(candidate("dead-units"), asked.ask(candidate("dead-units"), ()))
    found.reduce({"dead-units"})
    assert [each.finding.slug for each in found.needed] == ["dead-units", "overfitting"]
    assert found.surfaced["overfitting"][1] == ["dead-units"]


def test_a_suspicion_under_treatment_is_told_where_its_trial_confirms_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for effect, needed in ((0.5, ["dead-units", "overfitting"]), (0.0, ["dead-units"])):
        asked = Asked(lambda slug, base, effect=effect: 0.5 if slug == "dead-units" else effect)
        hidden = candidate("overfitting")
        suspected = dataclasses.replace(hidden.finding, status="suspected", probability=0.6)
        monkeypatch.setattr(asked, "under", lambda trial, found=suspected: [found])
        monkeypatch.setattr(asked, "candidates", lambda findings, found=hidden: [found])
        found = Confirmation(asked)
        found.add(candidate("dead-units"), asked.ask(candidate("dead-units"), ()))
        found.reduce({"dead-units"})
        assert [each.finding.slug for each in found.needed] == needed
        assert list(found.surfaced) == needed[1:]


def test_where_nothing_is_present_what_is_suspected_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text(json.dumps({"argv": ["train"], "cwd": str(tmp_path), "module": True}))
    asked = Asked(lambda slug, base: 0.5)
    asked.folder = tmp_path
    asked.run = learnt(2.2)
    monkeypatch.setattr(asked, "laid_out", lambda candidate: (10, 1.0, 1.0))
    suspected = dataclasses.replace(candidate("zero-grad-missing").finding, status="suspected", probability=0.7)
    unlikely = dataclasses.replace(candidate("loss-broadcast").finding, status="suspected")
    found = asked.confirm(Diagnosis("undetermined", [suspected, dataclasses.replace(unlikely, probability=0.35)], trainings=[{}], curve=[]))
    assert list(found.trials) == ["zero-grad-missing"]
    shown = Diagnosis("undetermined", [suspected], trainings=[{}], curve=[])
    attach(shown, tmp_path)
    assert shown.verdict == "zero-grad-missing"
    assert [(each.slug, each.status) for each in shown.findings] == [("zero-grad-missing", "present")]


def treated_record(folder: Path, end: float) -> Path:
    """Write a run of a hundred steps that ends at a loss."""
    loss = np.linspace(2.3, end, 100)
    columns = {"step": np.arange(100.0), "loss": loss, "wall": np.arange(100.0)}
    packed = {name: base64.b64encode(values.astype("<f8").tobytes()).decode() for name, values in columns.items()}
    parameter = {"key": 0, "name": "w", "shape": [1], "dtype": "float32", "requires_grad": True, "role": ""}
    lines = [
        {"kind": "track", "track": 0, "what": "optimizer", "parameters": [parameter], "began": 0.0},
        {"kind": "steps", "track": 0, "columns": packed},
    ]
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1}))
    (folder / "record-1-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(("end", "names", "asks"), [(0.1, {"clip"}, True), (2.3, {"clip"}, False), (0.1, {"stop_early"}, False)])
def test_experiments_are_made_under_a_treatment_that_works(tmp_path: Path, end: float, names: set[str], asks: bool) -> None:
    control = Training(signals={"loss": Series.of([2.3] * 100)})
    folder = treated_record(tmp_path / "run", end)
    asked: list[str] = []

    def ask(request: Any) -> Any:
        if "experiment" not in request:
            return {"folder": str(folder)}
        asked.append(request["experiment"])
        line = {"kind": "experiment", "track": None, "name": asked[-1], "status": "unknown", "seconds": 0.1, "facts": {"reason": "made up"}}
        return line if len(asked) < 3 else None

    WorkUp(control, 0, "loss", False, 100, frozenset(names), time.monotonic() + 60)(ask)
    assert bool(asked) == asks
    if asks:
        assert list(load_run(folder).trainings[0].experiments) == asked[:2]


# -- what is kept and shown -------------------------------------------------------------------------------------------------


def kept_trial(verdict: str = "confirmed") -> dict[str, Any]:
    return {
        "verdict": verdict,
        "reason": "",
        "treatments": [{"name": "clear_gradients", "parameters": {}}],
        "signal": "loss",
        "effect": {"mean": 0.9, "low": 0.8, "high": 1.0},
        "validation": None,
        "pairs": [{"seed": i, "control": float("inf"), "treated": 0.1, "effect": 0.9} for i in range(2)],
        "end": {"control": float("inf"), "treated": 0.1, "effect": 0.9, "steps": 500},
        "steps": 100,
        "seconds": 20.0,
        "curves": {"control": [(0, 1.0), (1, float("nan"))], "treated": [(0, 1.0), (1, 0.1)]},
    }


def diagnosis() -> Diagnosis:
    fault = faults()["zero-grad-missing"]
    seen = Evidence("not_reset", (1, 99), 1.0, 0.0)
    finding = Finding(fault.code, fault.slug, fault.title, fault.family, status="present", probability=0.99, evidence=(seen,))
    other = Finding("REG001", "overfitting", "Overfitting", "REG")
    return Diagnosis("zero-grad-missing", [finding, other], trainings=[{}], curve=[(0, 1.0), (1, 2.0)])


def test_trials_are_kept_and_come_back(tmp_path: Path) -> None:
    write_trials(tmp_path, {"trials": {"zero-grad-missing": kept_trial()}, "needed": ["zero-grad-missing"]})
    write_trials(tmp_path, {"trials": {"dead-units": kept_trial("refuted")}})
    assert set(read_trials(tmp_path)["trials"]) == {"zero-grad-missing", "dead-units"}
    found = diagnosis()
    attach(found, tmp_path)
    assert [each.confirmed for each in found.findings] == ["confirmed", None]
    assert found.findings[0].trial is not None
    assert found.findings[0].trial["end"]["control"] == float("inf")


def test_a_damaged_file_of_trials_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "trials.json").write_text("{")
    found = diagnosis()
    attach(found, tmp_path)
    assert found == diagnosis()


def test_a_finding_that_showed_under_treatment_is_told_as_such(tmp_path: Path) -> None:
    hidden = dataclasses.replace(diagnosis().findings[0], slug="overfitting", code="REG001")
    write_trials(tmp_path, {"surfaced": {"overfitting": {"finding": dataclasses.asdict(hidden), "under": ["reinitialise"]}}})
    found = diagnosis()
    attach(found, tmp_path)
    assert [each.slug for each in found.present] == ["zero-grad-missing", "overfitting"]
    assert "seen under reinitialise" in text(found)


def test_every_report_shows_the_trial(tmp_path: Path) -> None:
    write_trials(tmp_path, {"trials": {"zero-grad-missing": kept_trial()}, "needed": ["zero-grad-missing"]})
    found = diagnosis()
    attach(found, tmp_path)
    summary = "with clear_gradients the loss is 0.1, without infinite (step 500); 90% better (95% interval 80% to 100%)"
    assert summary in " ".join(text(found, width=300).split())
    assert "control" in text(found)
    html = page(found)
    assert summary in html
    assert html.count("Plotly.newPlot") == 2
    again = from_json(json.loads(json.dumps(to_json(found))))
    assert again.findings[0].trial is not None
    assert again.findings[0].confirmed == "confirmed"


# -- cost and room ------------------------------------------------------------------------------------------------------------


def test_a_long_run_is_compared_over_fewer_steps() -> None:
    walls = Series.of([5 + 0.5 * i for i in range(7200)])
    training = Training(signals={"loss": Series.of([1.0] * 7200), "wall": walls})
    run = Run(facts={"ended": {"seconds": 3600.0}})
    steps = cost.steps_within(training, cost.allowance(run, training))
    assert 0 < steps < 7200
    assert cost.seconds_of(training, steps) <= cost.allowance(run, training) == 7220.0


def test_too_little_time_is_no_trial() -> None:
    training = Training(signals={"loss": Series.of([1.0] * 100), "wall": Series.of([30.0 + i for i in range(100)])})
    assert cost.steps_within(training, 20) == 0


def test_a_full_disk_refuses_and_what_a_killed_trial_left_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cost.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    left, mine = tmp_path / "lossdoctor-trial-4194305-x", tmp_path / f"{cost.scratch_prefix()}x"  # no process has a number above 2**22
    for folder in (left, mine):
        folder.mkdir()
    cost.check_room()
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    monkeypatch.setattr(cost, "ROOM_BYTES", 1 << 60)
    with pytest.raises(LossdoctorError, match="MB free and a trial needs"):
        cost.check_room()


def test_a_run_that_cannot_be_started_again_is_told(tmp_path: Path) -> None:
    with pytest.raises(LossdoctorError, match=r"holds no private\.json"):
        Confirmer(tmp_path, Run()).confirm(diagnosis())
