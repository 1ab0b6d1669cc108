"""The figures of a run, whether it failed, its thinned curve, the conditions of a bigger machine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.run import Experiment, Row, Run, Series, Training
from lossdoctor.diagnose import machine
from lossdoctor.diagnose.vitals import curve, failed, vitals

GUESS = {"guess_loss": math.log(10), "zero_loss": math.log(10)}
CALL = Row(0, {"kind": "cross_entropy", "class_counts": [500] * 10, "classes": 10, "reduction": "mean", **GUESS})


def run_of(*loss: float, **fields: object) -> Training:
    return Training(signals={"loss": Series.of(loss)}, **fields)  # type: ignore[arg-type]


def test_figures_of_a_classifier() -> None:
    training = run_of(*np.linspace(2.4, 0.2, 60), rows={"loss_call": [CALL], "validation": [Row(59, {"loss": 0.4, "correct": 0.91})]})
    figures = vitals(Run(facts={"overhead_share": 0.008, "ended": {"seconds": 3.5}}, trainings=[training]), training)
    assert figures["steps"] == 60
    assert figures["trainings"] == 1
    assert figures["first_loss"] == pytest.approx(2.4)
    assert figures["expected_first_loss"] == pytest.approx(math.log(10), rel=1e-3)
    assert figures["last_loss"] == pytest.approx(0.3, abs=0.1)
    assert (figures["best_validation_loss"], figures["best_validation_accuracy"]) == (0.4, 0.91)
    assert (figures["overhead_share"], figures["seconds"]) == (0.008, 3.5)


def test_figures_that_were_not_recorded_are_left_out() -> None:
    assert set(vitals(Run(), Training())) == {"steps", "trainings"}


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ([2.4, 1.0, 0.3], False),
        ([2.4, 2.31, 2.3], True),
        ([2.4, 1.0, math.nan], True),
        ([9.0, 6.0, 3.0], True),
        ([math.nan], True),
        ([], True),
    ],
)
def test_a_classifier_fails_where_it_does_not_beat_guessing(loss: list[float], expected: bool) -> None:
    assert failed(run_of(*[value for value in loss for _ in range(30)], rows={"loss_call": [CALL]})) is expected


def test_a_loss_without_known_guess_fails_where_it_does_not_fall() -> None:
    assert failed(run_of(*[5.0] * 90))
    assert not failed(run_of(*np.linspace(5, 1, 90)))
    assert not failed(run_of(*np.linspace(-1, 1, 90))), "a loss of both signs has no level that means nothing learnt"


def test_a_phase_that_begins_low_has_not_failed() -> None:
    assert not failed(run_of(*[0.02] * 90, phase_of=0))


def test_rising_losses_of_a_generative_pair_are_no_failure() -> None:
    pair = run_of(*np.linspace(0.7, 2.0, 90), roles=[run_of(1.0), run_of(2.0)])
    assert not failed(pair)


def test_curve_keeps_the_extremes() -> None:
    values = np.ones(5000)
    values[1234], values[4321] = 50.0, -3.0
    values[7] = math.nan
    thinned = curve(run_of(*values))
    assert len(thinned) <= 200
    assert (1234, 50.0) in thinned
    assert (4321, -3.0) in thinned
    assert [step for step, _ in thinned] == sorted(step for step, _ in thinned)


def conditions(training: Training | None) -> dict[str, object]:
    _, found = machine.answer(Diagnosis(), training)
    return {condition["name"]: condition["met"] for condition in found}


def test_conditions_are_unknown_where_nothing_was_measured() -> None:
    assert set(conditions(None).values()) == {"unknown"}


def test_conditions_follow_the_signals() -> None:
    passes = [Row(step, {"loss": loss}) for step, loss in ((10, 2.0), (20, 1.0))]
    steps = 40
    signals = {"loss": Series.of([1.0] * steps), "wall": Series.of(np.arange(steps) * 0.1), "idle_seconds": Series.of([0.08] * steps)}
    memorised = {"memorise": Experiment("memorise", "done", 1.0, {"own": 0.004})}
    training = Training(signals=signals, rows={"validation": passes}, experiments=memorised, run_facts={"ended": {"how": "returned"}})
    assert conditions(training) == {
        "memorises a batch": True,
        "validation improves": True,
        "waiting for data is small": False,
        "device is busy": "unknown",
        "memory ran out": False,
    }
