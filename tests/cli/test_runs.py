"""`lossdoctor list` and `lossdoctor report` on runs that are kept."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from lossdoctor.cli import _runs, group
from lossdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def call(*arguments: str) -> Result:
    return CliRunner().invoke(group, list(arguments), catch_exceptions=False, standalone_mode=False)


def make_run(out: Path, name: str, steps: int = 50, script: str = "train.py") -> Path:
    """Write a small run: a loss that falls, and gradients that are never reset."""
    folder = out / name
    folder.mkdir(parents=True)
    began = f"{name[:4]}-{name[4:6]}-{name[6:8]}T12:00:00"
    (folder / "run.json").write_text(json.dumps({"format": 1, "script": script, "started": began, "pid": 1}))
    columns = {
        "step": np.arange(steps),
        "wall": np.arange(steps) / 10,
        "backward_value": np.linspace(2, 1, steps),
        "backwards": np.ones(steps),
        "not_reset": np.ones(steps),
    }
    packed = {key: base64.b64encode(np.asarray(values, "<f8").tobytes()).decode() for key, values in columns.items()}
    parameter = {"key": 1, "name": "weight", "shape": [3, 4], "dtype": "float32", "requires_grad": True, "role": "weight"}
    lines = [
        {"kind": "track", "track": 0, "what": "optimizer", "parameters": [parameter], "began": 0.0},
        {"kind": "steps", "track": 0, "columns": packed},
    ]
    (folder / "record-1-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("20240101-120000-41", "20240102-120000-7", "20240102-120000-3")):
        folder = make_run(tmp_path / ".lossdoctor", name)
        os.utime(folder / "run.json", (number, number))  # the last two began within the same second
    return tmp_path / ".lossdoctor"


def test_a_run_is_found_by_what_one_types(out: Path) -> None:
    first, second, third = out / "20240101-120000-41", out / "20240102-120000-7", out / "20240102-120000-3"
    assert _runs.run_folders(out) == [first, second, third]
    assert _runs.find_run("last", out) == third
    assert _runs.find_run("20240101", out) == first
    assert _runs.find_run("20240102-120000-7", out) == second
    assert _runs.find_run(str(second), out / "nowhere") == second
    assert _runs.find_run(f"{second}/", out) == second


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("2024", "3 runs begin with '2024'"),
        ("20240102", "2 runs begin"),
        ("lst", "did you mean 'last'?"),
        ("20240101-120000-14", "did you mean '20240101-120000-41'?"),
        ("zzz", "lossdoctor list"),
        ("no/such/folder", "no/such/folder"),
    ],
)
def test_a_run_that_is_not_there(out: Path, typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        _runs.find_run(typed, out)


def test_a_name_that_is_a_prefix_of_another_is_still_a_name(out: Path) -> None:
    make_run(out, "20240101-120000-4")
    assert _runs.find_run("20240101-120000-4", out).name == "20240101-120000-4"


def test_report_renders_again(out: Path) -> None:
    printed = call("report")
    assert printed.exit_code == 0
    assert "zero-grad-missing" in printed.output
    assert call("report", "last").output == printed.output
    report = json.loads(call("report", "20240101", "--json", "-").output)
    assert report["verdict"]["slug"] == "zero-grad-missing"
    assert call("report", "--quiet").output == ""


def test_report_heeds_its_options(out: Path, tmp_path: Path) -> None:
    left_out = call("report", "--ignore", "LOP001", "--json", "report.json", "--html", "report.html")
    assert "zero-grad-missing" not in left_out.output
    assert json.loads((tmp_path / "report.json").read_text())["verdict"]["slug"] != "zero-grad-missing"
    assert "<html" in (tmp_path / "report.html").read_text()
    assert call("report", "--quiet", "--fail-on", "never").exit_code == 0
    assert call("report", "--quiet", "--fail-on", "error").exit_code == 1


def test_list(out: Path) -> None:
    folder = out / "20240101-120000-41"
    (folder / "end.json").write_text(json.dumps({"how": "exception", "status": 1, "exception": "ValueError", "seconds": 3.0}))
    (folder / "diagnosis.json").write_text(json.dumps({"verdict": {"slug": "lr-too-high"}, "vitals": {"steps": 50}}))
    (out / "20240102-120000-7" / "end.json").write_text(json.dumps({"how": "signal", "status": -15, "exception": None}))
    (out / "20240102-120000-3" / "end.json").write_text('{"how": "exit", "sta')
    rows = json.loads(call("list", "--json", "-").output)
    assert [row["name"] for row in rows] == ["20240101-120000-41", "20240102-120000-7", "20240102-120000-3"]
    assert rows[0] == {
        "name": "20240101-120000-41",
        "script": "train.py",
        "started": "2024-01-01T12:00:00",
        "ended": "ValueError",
        "steps": 50,
        "verdict": "lr-too-high",
    }
    assert [row["ended"] for row in rows] == ["ValueError", "signal 15", ""]
    lines = call("list").output.splitlines()
    assert lines[0].split() == ["run", "script", "started", "ended", "steps", "verdict"]
    assert lines[1].split() == ["20240101-120000-41", "train.py", "2024-01-01T12:00:00", "ValueError", "50", "lr-too-high"]


def test_list_of_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no run is kept" in call("list").output
    assert json.loads(call("list", "--json", "-").output) == []


def test_names_with_markup_are_shown_as_they_are(out: Path) -> None:
    make_run(out, "20240103-120000-1", script="[bold]x[/bold].py")
    assert "[bold]x[/bold].py" in call("list").output
