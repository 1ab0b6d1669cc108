"""The report on a terminal and off one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from diagnoses import HOSTILE, diagnoses, failing, patient
from hypothesis import given
from rich.console import Console

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, BiggerMachine, Diagnosis, Finding
from lossdoctor.core.run import Location
from lossdoctor.report import terminal

UNWRAPPED = ("  where", "  next")


def printed(diagnosis: Diagnosis, encoding: str = "utf-8", width: int = 80, **options: bool) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    terminal.render(diagnosis, Console(file=stream, width=width, force_terminal=False), **options)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def test_a_failing_run_says_what_where_why_and_what_to_do() -> None:
    lines = printed(failing()).splitlines()
    assert lines[0] == "lossdoctor: Gradients pile up (almost certain, 99%)"
    text = " ".join(" ".join(lines).split())
    for part in (
        "fault LOP001 zero-grad-missing, error",
        "where train.py:31",
        "seen not_reset 1 (steps 1-599), expected 0: 100% of 599 steps added to gradients of earlier steps",
        "fix Call optimizer.zero_grad() once per step, before backward.",
        "explains OPT001 lr-too-high: Learning rate too high",
        "machine A bigger machine would not help. The loop is wrong on any machine.",
        "run 600 steps of 1.2 ms, loss 2.31 (guessing gives 2.303) to 1.92, best validation accuracy 80.4%, waiting 9%, watching took 1%",
        "advice REG003 validation-missing: No validation data. Hold out a part.",
        "suspected LAB001 labels-meaningless: Labels mean nothing (not excluded, 45%)",
        "next lossdoctor run --workup full train.py",
        "judged 1 fault ruled out, 1 not judged for want of a measurement",
        "broke ARC008 saturated-units could not be judged, our error: ZeroDivisionError: division by zero",
        "note the probe of activations was dropped: RuntimeError",
    ):
        assert part in text
    assert "█" in text
    assert len(lines) <= 25


def test_it_holds_without_unicode() -> None:
    text = printed(failing(), encoding="ascii")
    assert text.isascii()
    assert "  loss      #" in text


def test_colours_only_on_a_terminal() -> None:
    stream = io.StringIO()
    terminal.render(failing(), Console(file=stream, width=80, force_terminal=True, color_system="standard"))
    assert "\x1b[" in stream.getvalue()
    assert "\x1b" not in printed(failing())


@patient
@given(diagnoses())
def test_any_diagnosis_prints_as_calm_lines(diagnosis: Diagnosis) -> None:
    for encoding in ("utf-8", "ascii", "latin-1"):
        text = printed(diagnosis, encoding)
        assert text.startswith("lossdoctor:")
        assert all(c == "\n" or c.isprintable() for c in text)
        for line in text.splitlines():
            assert line == line.rstrip()
            assert len(line) <= 80 or line.startswith(UNWRAPPED)


def test_hostile_text_is_shown_as_it_is() -> None:
    for text in HOSTILE[:2]:
        shown = printed(Diagnosis(notes=[text]))
        assert text in shown


def test_two_independent_causes_are_both_told_and_the_verdict_is_first() -> None:
    first = Finding("LAB001", "labels-meaningless", "Labels mean nothing", "LAB", "present", "error", 0.95)
    second = Finding("PIP001", "input-bottleneck", "The run waits for data", "PIP", "present", "warning", 0.99)
    text = printed(Diagnosis(verdict="labels-meaningless", findings=[second, first]))
    assert text.index("lossdoctor: Labels mean nothing") < text.index("and: The run waits for data (almost certain, 99%)")


def test_healthy_has_its_own_words_and_names_advice() -> None:
    advice = Finding("OPT010", "too-few-epochs", "Stopped while still improving", "OPT", "present", "advice", 0.9, fix="Train longer.")
    machine = BiggerMachine("speed-only", "it learns as it is")
    text = printed(Diagnosis(HEALTHY, [advice], {"steps": 1}, machine, trainings=[{}]))
    assert text.startswith("lossdoctor: Healthy: no known fault was found\n")
    assert "advice    OPT010 too-few-epochs: Stopped while still improving. Train longer." in text
    assert "A bigger machine would only make it faster. It learns as it is." in text
    assert "1 step" in text


def test_healthy_is_not_said_where_nothing_could_be_judged() -> None:
    unknown = Finding("LOP001", "zero-grad-missing", "Gradients pile up", "LOP", "unknown")
    assert printed(Diagnosis(findings=[unknown])).startswith("lossdoctor: No fault could be looked for\n")
    assert "Healthy" in printed(Diagnosis(findings=[unknown, Finding("OPT001", "a", "A", "OPT", "absent")]))


def test_healthy_is_not_said_where_a_fault_is_suspected() -> None:
    doubt = Finding("LAB001", "labels-meaningless", "Labels mean nothing", "LAB", "suspected", "error", 0.55)
    text = printed(Diagnosis(findings=[doubt, Finding("OPT001", "a", "A", "OPT", "absent")], next_step="lossdoctor run --workup full a.py"))
    assert text.startswith("lossdoctor: No fault was found for certain, 1 is suspected\n")
    assert "  suspected LAB001 labels-meaningless: Labels mean nothing (possible, 55%)" in text


def test_places_in_the_working_directory_are_named_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, shown in ((tmp_path / "train.py", "train.py:3"), (Path("/elsewhere/train.py"), "/elsewhere/train.py:3")):
        finding = Finding("LOP001", "a", "A", "LOP", "present", "error", 0.9, where=Location(str(file), 3))
        assert f"  where     {shown}\n" in printed(Diagnosis("a", [finding]))


def test_undetermined_tells_a_failed_run_from_one_that_trained_nothing() -> None:
    failed = printed(Diagnosis(UNDETERMINED, next_step="lossdoctor check train.py", trainings=[{"index": 0}]))
    assert failed.startswith("lossdoctor: The run fails, and no known fault explains it yet\n")
    assert "next      lossdoctor check train.py" in failed
    nothing = printed(Diagnosis(UNDETERMINED, notes=["nothing was trained: no backward was seen"]))
    assert nothing.startswith("lossdoctor: Nothing was trained\n")
    assert "machine" not in nothing


def test_a_command_is_one_line_however_long() -> None:
    command = "lossdoctor run --workup full " + "very-long-folder/" * 8 + "train.py"
    assert f"  next      {command}\n" in printed(Diagnosis(UNDETERMINED, next_step=command))


def test_the_source_line_is_shown_only_where_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("password = 'secret'\nloss.backward()\n")
    finding = Finding("LOP001", "a", "A", "LOP", "present", "error", 0.9, where=Location(str(script), 2))
    diagnosis = Diagnosis("a", [finding])
    assert "loss.backward()" not in printed(diagnosis)
    assert f"{script}:2: loss.backward()" in printed(diagnosis, source=True)


def test_a_trial_is_told_with_the_verdict() -> None:
    diagnosis = failing()
    diagnosis.findings[0].confirmed = "confirmed"
    assert "(almost certain, 99%, confirmed by a trial)" in printed(diagnosis)


def test_many_findings_of_a_kind_are_counted_not_listed() -> None:
    many = [Finding(f"OPT{n:03}", f"slug-{n}", "Title", "OPT", "suspected", "error", 0.4) for n in range(12)]
    text = printed(Diagnosis(findings=many))
    assert text.count("Title") == 5
    assert "and 7 more" in text
