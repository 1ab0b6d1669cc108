"""Which finding explains which, the order of the report, the verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_faults import made, training

from lossdoctor.core.diagnosis import Diagnosis, Evidence, Finding
from lossdoctor.core.fault import Fault
from lossdoctor.core.run import Run
from lossdoctor.diagnose import diagnose
from lossdoctor.diagnose.triage import in_order


def told(**facts: object) -> Diagnosis:
    return diagnose(Run(trainings=[training(**facts)]))


def slugs(diagnosis: Diagnosis) -> list[str]:
    return [finding.slug for finding in diagnosis.present]


@pytest.mark.usefixtures("four")
def test_a_cause_takes_its_symptom_under_it() -> None:
    diagnosis = told(cause=0.9, symptom=1.0)
    cause, symptom = diagnosis.finding("cause"), diagnosis.finding("symptom")
    assert cause is not None
    assert symptom is not None
    assert diagnosis.verdict == "cause"
    assert cause.explains == ("symptom",)
    assert symptom.explained_by == "cause"


@pytest.mark.usefixtures("four")
def test_a_symptom_alone_is_the_verdict() -> None:
    assert told(symptom=1.0).verdict == "symptom"
    assert told(cause=0.5, symptom=1.0).verdict == "symptom"


@pytest.mark.usefixtures("four")
def test_a_symptom_before_its_cause_is_independent() -> None:
    diagnosis = told(cause=1.0, symptom=1.0, **{"cause at": (30, 40), "symptom at": (5, 90)})
    symptom = diagnosis.finding("symptom")
    assert symptom is not None
    assert symptom.explained_by is None
    assert slugs(diagnosis) == ["cause", "symptom"]


@pytest.mark.usefixtures("four")
def test_report_order_is_causes_then_symptoms_then_advice_then_the_rest() -> None:
    diagnosis = told(cause=0.85, symptom=1.0, other=0.9, curve=1.0)
    assert slugs(diagnosis) == ["cause", "other", "symptom", "curve"]
    mixed = told(cause="missing", symptom=0.5, other=1.0)
    assert [finding.status for finding in mixed.findings] == ["present", "suspected", "unknown", "absent"]


@pytest.mark.usefixtures("four")
def test_severity_comes_before_probability() -> None:
    assert slugs(told(cause=0.8, other=1.0)) == ["cause", "other"]


@pytest.mark.usefixtures("four")
def test_an_advised_cause_explains_nothing() -> None:
    assert told(cause=1.0, symptom=1.0, **{"cause severity": "advice"}).verdict == "symptom"


def test_faults_that_explain_each_other_do_not_hide_each_other(folder: Callable[..., dict[str, Fault]]) -> None:
    folder(made("AAA001", "one", explains=("two",)), made("AAA002", "two", explains=("three",)), made("AAA003", "three", explains=("one",)))
    diagnosis = told(one=1.0, two=0.9, three=0.85)
    assert diagnosis.verdict == "one"
    assert diagnosis.present[0].explains == ("two", "three")


def test_what_acts_on_the_weights_shows_from_the_next_step() -> None:
    def seen(family: str, *steps: int) -> Finding:
        return Finding(f"{family}001", family, family, family, evidence=(Evidence("loss", (steps[0], steps[-1]), 1.0, 0.0),))

    assert not in_order(seen("OPT", 0), seen("ARC", 0))
    assert in_order(seen("OPT", 0), seen("ARC", 1))
    assert in_order(seen("DAT", 0), seen("ARC", 0))
    assert in_order(seen("OPT", 12), seen("CUR", 0, 100))
    assert not in_order(seen("OPT", 12), seen("NUM", 11))
    assert not in_order(Finding("OPT001", "a", "a", "OPT"), seen("NUM", 11))


@pytest.mark.usefixtures("four")
def test_a_cause_that_no_machine_cures_says_no() -> None:
    assert told(cause=1.0).bigger_machine.helps == "no"
    assert told(other=1.0).bigger_machine.helps == "speed-only"
    assert told(cause=1.0, other=1.0).bigger_machine.helps == "no"
