"""What the engine makes of the answers of the rules, on made faults."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from made_faults import made, training

from lossdoctor.core.errors import UsageError
from lossdoctor.core.fault import Fault
from lossdoctor.core.run import Run, Series, Training
from lossdoctor.diagnose import diagnose, judge, strength, vitals

pytestmark = pytest.mark.usefixtures("four")


def status(slug: str, **facts: object) -> str:
    finding = diagnose(Run(trainings=[training(**facts)])).finding(slug)
    assert finding is not None
    return finding.status


@pytest.mark.parametrize(
    ("strength", "expected"),
    [(0.0, "absent"), (0.2, "absent"), (0.3, "suspected"), (0.79, "suspected"), (0.8, "present"), (1.0, "present")],
)
def test_strength_decides_the_status(strength: float, expected: str) -> None:
    assert status("cause", cause=strength) == expected


def test_a_missing_signal_is_unknown_and_says_how_to_get_it() -> None:
    finding = diagnose(Run(trainings=[training(cause="missing")])).finding("cause")
    assert finding is not None
    assert finding.status == "unknown"
    assert finding.missing.startswith("validation: evaluate on held-out data")


def test_a_rule_that_raises_is_broke_and_the_others_go_on() -> None:
    diagnosis = diagnose(Run(trainings=[training(cause="broken", other=1.0)]))
    broke = diagnosis.finding("cause")
    assert broke is not None
    assert (broke.status, broke.missing) == ("broke", "ZeroDivisionError: of our own")
    assert diagnosis.verdict == "other"


def test_nothing_trained_is_undetermined_with_a_note() -> None:
    diagnosis = diagnose(Run())
    assert diagnosis.verdict == "undetermined"
    assert "nothing was trained" in diagnosis.notes[0]
    assert {finding.status for finding in diagnosis.findings} == {"unknown"}


def test_a_run_without_faults_is_healthy() -> None:
    diagnosis = diagnose(Run(trainings=[training()]))
    assert diagnosis.verdict == "healthy"
    assert diagnosis.bigger_machine.helps == "speed-only"
    assert diagnosis.next_step == ""


def test_a_loss_that_does_not_fall_is_undetermined_with_the_next_step() -> None:
    flat = Training(signals={"loss": Series.of([2.3] * 50)}, facts={"cause": 0.5})
    diagnosis = diagnose(Run(facts={"script": "train.py"}, trainings=[flat]))
    assert diagnosis.verdict == "undetermined"
    assert diagnosis.next_step == "lossdoctor run --workup full train.py"
    assert diagnosis.bigger_machine.helps == "unknown"


@pytest.mark.parametrize(
    ("mode", "severity", "verdict"), [("run", "advice", "healthy"), ("check", "advice", "healthy"), ("read", "error", "curve")]
)
def test_symptoms_of_the_curve_decide_only_on_logs(mode: str, severity: str, verdict: str) -> None:
    diagnosis = diagnose(Run(trainings=[training(curve=1.0)]), mode=mode)  # type: ignore[arg-type]
    finding = diagnosis.finding("curve")
    assert finding is not None
    assert (finding.severity, diagnosis.verdict) == (severity, verdict)


def test_a_rule_may_lower_its_severity_and_not_raise_it() -> None:
    lowered = diagnose(Run(trainings=[training(cause=1.0, **{"cause severity": "advice"})])).finding("cause")
    raised = diagnose(Run(trainings=[training(other=1.0, **{"other severity": "error"})])).finding("other")
    assert lowered is not None
    assert raised is not None
    assert (lowered.severity, raised.severity) == ("advice", "warning")


@pytest.mark.parametrize(
    ("select", "ignore", "left"),
    [
        ((), (), ["cause", "curve", "other", "symptom"]),
        (("cause",), (), ["cause"]),
        (("AAA001", "bbb"), (), ["cause", "other", "symptom"]),
        ((), ("BBB", "CUR001"), ["cause"]),
        (("BBB",), ("symptom",), ["other"]),
    ],
)
def test_select_and_ignore_take_codes_families_and_slugs(select: tuple[str, ...], ignore: tuple[str, ...], left: list[str]) -> None:
    diagnosis = diagnose(Run(trainings=[training()]), select=select, ignore=ignore)
    assert sorted(finding.slug for finding in diagnosis.findings) == left


def test_an_unknown_name_is_wrong_usage_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"'cuase'.*'cause'"):
        diagnose(Run(), select=("cuase",))
    with pytest.raises(UsageError, match="ZZZ"):
        diagnose(Run(), ignore=("ZZZ",))


def test_findings_hold_plain_values() -> None:
    def detect(_: Training) -> object:
        from lossdoctor.core.diagnosis import Evidence
        from lossdoctor.core.fault import Detection

        return Detection(np.float64(1.0), (Evidence("loss", (np.int64(1), np.int64(2)), np.float64(0.5), np.float32(1.0)),))  # type: ignore[arg-type]

    finding = judge(dataclasses.replace(made("AAA002", "numpy"), detect=detect), training())  # type: ignore[arg-type]
    assert json.loads(json.dumps([dataclasses.asdict(item) for item in finding.evidence]))[0]["steps"] == [1, 2]


def test_strength_for_the_bench_is_zero_where_a_rule_cannot_answer(four: dict[str, Fault]) -> None:
    assert strength(four["cause"], training(cause=0.4)) == 0.4
    assert strength(four["cause"], training(cause="missing")) == 0.0
    assert strength(four["cause"], Training()) == 0.0


def test_a_figure_that_breaks_costs_the_figure_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr(vitals, "vitals", broken)
    diagnosis = diagnose(Run(trainings=[training(cause=1.0)]))
    assert (diagnosis.verdict, diagnosis.vitals) == ("cause", {})
    assert diagnosis.notes == ["broke: vitals: ZeroDivisionError: of our own"]


def test_a_training_taken_out_of_its_run_is_judged_alone() -> None:
    assert diagnose(Run(trainings=[training(index=3, phase_of=2, cause=1.0)])).verdict == "cause"


def test_where_nothing_was_trained_no_experiment_is_offered() -> None:
    assert diagnose(Run(facts={"script": "train.py"})).next_step == ""
