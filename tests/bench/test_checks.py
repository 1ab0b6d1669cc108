"""The score of `check` on real scripts: what counts as named, what as an alarm, which scripts are taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lossdoctor.bench import checks
from lossdoctor.bench.checks import Scored, judge, main, scripts, summary


def report(verdict: str, *present: tuple[str, str]) -> dict[str, Any]:
    return {
        "verdict": {"slug": verdict},
        "findings": [{"slug": slug, "status": "present", "severity": severity} for slug, severity in present],
    }


@pytest.mark.parametrize(
    ("said", "expected", "score"),
    [
        (report("a", ("a", "error"), ("b", "error")), [["a", "x"], ["b"]], "HIT"),
        (report("c", ("c", "error"), ("a", "error")), [["a"]], "PART"),
        (report("a", ("a", "error")), [["a"], ["b"]], "PART"),
        (report("healthy"), [["a"]], "miss"),
        (report("healthy", ("a", "advice")), [], "clean"),
        (report("a", ("a", "warning")), [], "ALARM"),
    ],
)
def test_what_counts_as_named(said: dict[str, Any], expected: list[list[str]], score: str) -> None:
    assert judge(said, expected)[0] == score


def case(folder: Path, name: str, *files: str) -> None:
    (folder / name).mkdir()
    for file in files:
        (folder / name / file).write_text(json.dumps({"expected": [["a"]]}) if file == "case.json" else "", encoding="utf-8")


def test_every_script_of_a_case_is_scored_and_the_table_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case(tmp_path, "one", "case.json", "broken.py", "fixed.py")
    case(tmp_path, "two", "case.json", "script.py")
    case(tmp_path, "none", "script.py")
    assert [(each.name, script) for each, script in scripts(tmp_path)] == [("one", "broken.py"), ("one", "fixed.py"), ("two", "script.py")]
    monkeypatch.setattr(checks, "score", lambda folder, script: Scored(folder.name, script, "clean", 41.0, "healthy"))
    done = CliRunner().invoke(main, [str(tmp_path), "--only", "two", "--table", str(tmp_path / "table.md")])
    assert done.exit_code == 0
    assert "script.py: 1 of 1 clean" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert summary([Scored("two", "script.py", "clean", 41.0, "")]).endswith("0 of 1 within 40 s")
