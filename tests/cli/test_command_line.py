"""The command line: what it finds, what it imports, and how it says that something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lossdoctor
from lossdoctor.core.fault import faults

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = subprocess.CompletedProcess[str]
ENTRY = "import sys; from lossdoctor.cli import main; sys.argv[0] = 'lossdoctor'; main()"
COMMANDS = [path.stem for path in (Path(lossdoctor.__file__).parent / "cli").glob("[a-z]*.py")]


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., Answer]:
    environ = {**os.environ, "PYTHONPATH": str(Path(lossdoctor.__file__).parent.parent), "COLUMNS": "100"}

    def run(*arguments: str, entry: str = ENTRY) -> Answer:
        return subprocess.run([sys.executable, "-c", entry, *arguments], cwd=tmp_path, env=environ, capture_output=True, text=True)

    return run


def wrong(answer: Answer, *words: str, status: int = 2) -> None:
    """Assert that a call failed with one line that holds some words."""
    assert answer.returncode == status
    assert answer.stdout == ""
    assert answer.stderr.startswith("lossdoctor: ")
    assert answer.stderr.count("\n") == 1
    for word in words:
        assert word in answer.stderr


def test_help_is_quick(doctor: Callable[..., Answer]) -> None:
    """The bar is 0.15 s; what is asserted is its reason: nothing heavy, and no command, is imported."""
    for arguments in (["--help"], ["--version"], []):
        answer = doctor(*arguments, entry=f"import atexit, sys; atexit.register(lambda: print('IMPORTED', *sys.modules)); {ENTRY}")
        assert answer.returncode == 0
        imported = set(answer.stdout.split("IMPORTED")[1].split())
        assert not imported & {"torch", "numpy", "pandas", "rich", "plotly", "jinja2", "sklearn", "psutil", "tomllib"}
        assert [name for name in imported if name.startswith("lossdoctor.cli.")] == []


def test_help_lists_every_command_with_a_line(doctor: Callable[..., Answer]) -> None:
    answer = doctor("--help")
    lines = answer.stdout.split("Commands:")[1].splitlines()
    listed = {line.split()[0]: line.split(None, 1)[1:] for line in lines if line.startswith("  ") and line[2] != " "}
    assert sorted(listed) == sorted(COMMANDS)
    assert all(listed.values())
    assert doctor().stdout == answer.stdout == doctor("-h").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(doctor: Callable[..., Answer], name: str) -> None:
    answer = doctor(name, "--help")
    assert answer.returncode == 0
    assert f"Usage: lossdoctor {name}" in answer.stdout


def test_a_command_dropped_into_the_folder_appears(doctor: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "greet.py").write_text(
        '"""Say hello."""\nimport click\n@click.command()\ndef command():\n    click.echo("hello")\n'
    )
    entry = f"import lossdoctor.cli; lossdoctor.cli.__path__.append({str(tmp_path / 'extra')!r}); {ENTRY}"
    assert "greet" in doctor("--help", entry=entry).stdout
    assert "Say hello" in doctor("--help", entry=entry).stdout
    assert doctor("greet", entry=entry).stdout == "hello\n"


def test_version(doctor: Callable[..., Answer]) -> None:
    assert doctor("-V").stdout == doctor("--version").stdout == f"lossdoctor {lossdoctor.__version__}\n"


def test_what_is_wrong_is_said_in_one_line(doctor: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    wrong(doctor("rnu"), "'rnu'", "did you mean 'run'?")
    wrong(doctor("xyzzy"), "'xyzzy'", "run")
    wrong(doctor("train.py"), "lossdoctor run train.py")
    wrong(doctor("--quite", "run"), "--quite")
    wrong(doctor("run"), "SCRIPT")
    wrong(doctor("run", "trian.py"), "no such script: 'trian.py'")
    wrong(doctor("run", "--jsno", "x", "train.py"), "--jsno", "--json")
    wrong(doctor("run", "--json", "-", "train.py"), "--json -", "standard output is the script's")
    wrong(doctor("run", "--json", "no/such/report.json", "train.py"), "--json no/such/report.json", "no folder")
    wrong(doctor("run", "--json", ".", "train.py"), "--json .", "folder")
    wrong(doctor("run", "--html", "no/such/report.html", "train.py"), "--html no/such/report.html", "no folder")
    wrong(doctor("run", "--budget", "lots", "train.py"), "--budget", "'lots'", "1%")
    wrong(doctor("run", "--budget", "0%", "train.py"), "--budget", "above 0")
    wrong(doctor("run", "--max-steps", "0", "train.py"), "--max-steps", "0")
    wrong(doctor("run", "--max-steps", "ten", "train.py"), "--max-steps", "'ten'")
    wrong(doctor("run", "--fail-on", "errors", "train.py"), "--fail-on", "'error'")
    wrong(doctor("run", "--workup", "some", "train.py"), "--workup", "auto")
    wrong(doctor("run", "--select", "LOP01", "train.py"), "'LOP01'", "did you mean 'LOP0")
    wrong(doctor("run", "--ignore", "zero-grad-mising", "train.py"), "did you mean 'zero-grad-missing'?")
    wrong(doctor("run", "--out", "train.py", "train.py"), "--out", "train.py")
    wrong(doctor("explain", "zero-grads-missing"), "did you mean 'zero-grad-missing'?")
    wrong(doctor("explain", "healthy-ish"), "'healthy-ish'")
    wrong(doctor("report", "last"), "no run is kept")
    assert not (tmp_path / "started").exists()


def test_settings_are_heeded_and_their_errors_told(doctor: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "pyproject.toml").write_text("[tool.lossdoctor]\nquiet = true\njson = 'made.json'\n")
    answer = doctor("run", "train.py")
    assert (answer.stdout, answer.stderr) == ("ran\n", "")
    assert json.loads((tmp_path / "made.json").read_text())["schema"] == "lossdoctor/report/1"
    assert doctor("run", "--json", "typed.json", "train.py").returncode == 0
    assert (tmp_path / "typed.json").is_file()
    (tmp_path / "pyproject.toml").write_text("[tool.lossdoctor]\nquite = true\n")
    wrong(doctor("run", "train.py"), "'quite'", "did you mean 'quiet'?")
    assert doctor("--help").returncode == 0


def test_an_unexpected_error_is_one_sentence_and_on_request_a_traceback(
    doctor: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = f"import lossdoctor.core.fault as f; f.faults = None; {ENTRY}"
    wrong(doctor("faults", entry=entry), "TypeError", "LOSSDOCTOR_DEBUG=1", status=3)
    debugging = f"import os; os.environ['LOSSDOCTOR_DEBUG'] = '1'; {entry}"
    assert "Traceback" in doctor("faults", entry=debugging).stderr


def test_a_reader_that_goes_away_is_no_error(doctor: Callable[..., Answer], tmp_path: Path) -> None:
    for arguments in ("faults", "--help", "faults --json -", "explain LOP001"):
        command = f'{sys.executable} -c "{ENTRY}" {arguments} | true'
        done = subprocess.run(["bash", "-c", command + "; exit ${PIPESTATUS[0]}"], cwd=tmp_path, capture_output=True, text=True)
        assert "lossdoctor:" not in done.stderr
        assert "Traceback" not in done.stderr


def test_faults_lists_all(doctor: Callable[..., Answer], tmp_path: Path) -> None:
    listed = json.loads(doctor("faults", "--json", "-").stdout)
    assert [fault["code"] for fault in listed] == [fault.code for fault in faults().values()]
    assert set(listed[0]) == {"code", "slug", "title", "family", "severity", "maturity"}
    table = doctor("faults").stdout
    for fault in faults().values():
        assert any(line.split()[:2] == [fault.code, fault.slug] for line in table.splitlines())
    doctor("faults", "--json", "list.json")
    assert json.loads((tmp_path / "list.json").read_text()) == listed
    wrong(doctor("faults", "--json", "no/list.json"), "no/list.json")


def test_explain_by_code_and_slug(doctor: Callable[..., Answer]) -> None:
    answer = doctor("explain", "LOP001")
    assert answer.returncode == 0
    assert "zero-grad-missing" in answer.stdout
    assert "What to do" in answer.stdout
    assert doctor("explain", "lop001").stdout == doctor("explain", "Zero-Grad-Missing").stdout == answer.stdout
