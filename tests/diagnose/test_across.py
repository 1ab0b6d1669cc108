"""Phases, repeats, other works and roles: which of them decide."""

from __future__ import annotations

import pytest
from made_faults import training

from lossdoctor.core.run import Run, Series, Training
from lossdoctor.diagnose import diagnose
from lossdoctor.diagnose.across import main_training, views

pytestmark = pytest.mark.usefixtures("four")


def answer(*trainings: Training) -> tuple[str, str]:
    for index, each in enumerate(trainings):
        each.index = index
    finding = diagnose(Run(trainings=list(trainings))).finding("cause")
    assert finding is not None
    return finding.status, finding.severity


def test_the_last_phase_decides() -> None:
    assert answer(training(), training(phase_of=0, cause=1.0)) == ("present", "error")
    assert answer(training(cause=1.0), training(phase_of=0)) == ("present", "advice")


def test_an_earlier_phase_counts_where_the_last_failed() -> None:
    spoilt = Training(signals={"loss": Series.of([float("nan")] * 9)}, facts={"parameters": [{"name": "w"}]}, phase_of=0)
    assert answer(training(cause=1.0), spoilt) == ("present", "error")


def test_a_phase_that_cannot_be_judged_leaves_the_answer_to_the_one_before() -> None:
    assert answer(training(cause=1.0), training(phase_of=0, cause="missing")) == ("present", "error")


def test_most_repeats_or_the_last_decide() -> None:
    sick, well = {"cause": 1.0}, {}
    assert answer(*(training(**facts) for facts in (sick, sick, sick, well, well))) == ("present", "error")
    assert answer(*(training(**facts) for facts in (well, well, well, well, sick))) == ("present", "error")


def test_a_failing_minority_of_repeats_is_advice() -> None:
    assert answer(*(training(**facts) for facts in ({"cause": 1.0}, {}, {}, {}))) == ("present", "advice")
    assert answer(training(), training()) == ("absent", "error")


def test_another_model_is_a_work_of_its_own() -> None:
    assert answer(training(cause=1.0, names=("encoder",)), training(names=("probe",))) == ("present", "error")


def test_gradients_that_are_only_looked_at_are_no_phase() -> None:
    looked = training(phase_of=0, what="manual")
    looked.rows["coverage"] = []
    assert answer(training(cause=1.0), looked) == ("present", "error")


def test_figures_come_from_the_last_training_of_full_length() -> None:
    main = main_training([training(100, index=0), training(90, index=1), training(10, index=2)])
    assert main is not None
    assert main.index == 1
    assert main_training([]) is None


def test_rivals_keep_their_roles_and_partners_do_not() -> None:
    one, two = training(cause=1.0), training()
    partners = Training(index=3, roles=[one, two])
    assert [view.roles for view in views(partners)] == [[], []]
    two.signals["loss"] = Series.of([0.5] * 20)
    rivals = views(Training(index=3, roles=[one, two]))
    assert [len(view.roles) for view in rivals] == [2, 2]
    assert [view.index for view in rivals] == [3, 3]


def test_one_sick_role_is_enough() -> None:
    pair = Training(signals=training().signals, facts=training().facts, roles=[training(), training(cause=1.0)])
    assert answer(pair) == ("present", "error")
