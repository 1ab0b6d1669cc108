"""Folders of runs, comparisons, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.readers import load, read
from lossdoctor.readers.compare import compare
from lossdoctor.readers.folders import find
from tests.readers.samples import SAMPLE, tf_event, tf_file, wandb_file


def curve(start: float, end: float, count: int = 40) -> list[float]:
    return [end + (start - end) * 0.9**i for i in range(count)]


def csv(losses: list[float], held_out: list[float] | None = None) -> str:
    names = "epoch,loss" + (",val_loss" if held_out else "")
    rows = [f"{i},{loss}" + (f",{held_out[i]}" if held_out else "") for i, loss in enumerate(losses)]
    return "\n".join([names, *rows]) + "\n"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder as people have them: three runs, a checkpoint's copy of one, and files that are no logs."""
    for name, text in {
        "good": csv(curve(2.3, 0.3), curve(2.3, 0.35)),
        "better": csv(curve(2.3, 0.1), curve(2.3, 0.2)),
        "bad": csv([2.3, 2.0, *["nan"] * 9]),
    }.items():  # type: ignore[list-item]
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.csv").write_text(text)
    (tmp_path / "good" / "checkpoint-20").mkdir()
    (tmp_path / "good" / "checkpoint-20" / "log.csv").write_text(
        "".join((tmp_path / "good" / "log.csv").read_text().splitlines(keepends=True)[:21])
    )
    (tmp_path / "good" / "train.py").write_text("loss = 1.0\n" * 20)
    (tmp_path / "notes.txt").write_text("the loss was 0.3, I think\n")
    (tmp_path / "good" / "weights.bin").write_bytes(bytes(range(256)) * 10)
    return tmp_path


def lossdoctor(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "lossdoctor", *arguments], input=stdin, capture_output=True, timeout=60)


def test_a_folder_is_searched_and_copies_of_checkpoints_left_out(runs: Path) -> None:
    assert sorted(name for name, _ in find(runs)) == ["bad/log.csv", "better/log.csv", "good/log.csv"]


def test_the_worst_comes_first_and_the_best_is_named(runs: Path) -> None:
    diagnosis = read(runs)
    assert diagnosis.verdict == "loss-not-finite"
    assert diagnosis.run["runs"][0]["name"] == "bad/log.csv"
    assert diagnosis.run["best"] == "better/log.csv"


def test_a_folder_prints_a_line_for_each_run(runs: Path) -> None:
    done = lossdoctor("read", str(runs))
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    names = [line.split()[0] for line in lines[:4]]
    assert (names[:2], sorted(names[2:])) == (["run", "bad/log.csv"], ["better/log.csv", "good/log.csv"])
    assert "learns best: better/log.csv" in done.stdout.decode()


def test_an_empty_folder_is_said_to_hold_no_log(tmp_path: Path) -> None:
    with pytest.raises(LossdoctorError, match="no training log was found"):
        read(tmp_path)


def test_runs_that_differ_in_their_settings(tmp_path: Path) -> None:
    for rate, end in ((0.1, 0.3), (0.01, 0.1)):
        rows = [{"train/loss": loss, "_step": i} for i, loss in enumerate(curve(2.3, end))]
        (tmp_path / f"{rate}.wandb").write_bytes(wandb_file(rows, {"lr": rate, "batch_size": 32}))
    compared = compare([(path.name, load(path)) for path in sorted(tmp_path.iterdir())])
    diagnosis = read(tmp_path)
    assert len(compared) == 2
    assert {tuple(sorted(values)) for values in diagnosis.run["differences"].values()} == {(0.01, 0.1)}
    assert diagnosis.run["best"] == "0.01.wandb"


def test_event_files_of_one_run_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "validation").mkdir()
    (tmp_path / "train" / "events.a").write_bytes(tf_file([tf_event(10.0 + i, i, {"epoch_loss": 2.0 - 0.1 * i}) for i in range(9)]))
    (tmp_path / "validation" / "events.b").write_bytes(tf_file([tf_event(10.5 + i, i, {"epoch_loss": 2.1 - 0.1 * i}) for i in range(9)]))
    training = load(tmp_path).trainings[0]
    assert training.signals["loss"].values.tolist() == pytest.approx(np.float32([2.0 - 0.1 * i for i in range(9)]).tolist())
    assert [row["loss"] for row in training.rows["validation"]] == pytest.approx([2.1 - 0.1 * i for i in range(9)])


def test_a_recorded_run_of_our_own_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000000-1"
    folder.mkdir()
    (folder / "run.json").write_text('{"format": 1, "script": "train.py"}')
    (folder / "record-1-0000.jsonl").write_text("")
    assert load(folder).facts["script"] == "train.py"


@pytest.mark.parametrize("name", ["lightning", "hf_stdout", "tensorboard", "wandb", "mlflow_db", "keras_pickle"])
def test_standard_input(name: str) -> None:
    done = lossdoctor("read", "--quiet", "--json", "-", "-", stdin=SAMPLE[name].content)
    report = json.loads(done.stdout)
    assert report["schema"] == "lossdoctor/report/1"
    assert report["run"]["format"] == SAMPLE[name].format


def test_json_report_holds_columns_and_trainings(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SAMPLE["keras_csv"].content)
    assert lossdoctor("read", "--quiet", "--json", str(tmp_path / "report.json"), str(path)).returncode == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert {entry["column"]: entry["role"] for entry in report["run"]["columns"]}["val_loss"] == "validation_loss"
    assert len(report["trainings"]) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["no-such-file"], 2, "no file or folder 'no-such-file'"),
        (["EMPTY"], 2, "is empty"),
        (["NOTES"], 2, "holds no training log"),
        (["--map", "loss=no_such", "LOG"], 2, "no column 'no_such'"),
        (["--map", "loss", "LOG"], 2, "ROLE=COLUMN"),
        (["--select", "XYZ", "LOG"], 2, "XYZ"),
        ([], 2, "PATH"),
        (["--fail-on", "error", "NAN"], 1, ""),
        (["--fail-on", "error", "LOG"], 0, ""),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(arguments: list[str], status: int, word: str, tmp_path: Path) -> None:
    files = {
        "EMPTY": "",
        "NOTES": "some words and 3 numbers\n" * 5,
        "LOG": csv(curve(2.3, 0.3)),
        "NAN": csv([2.3, float("nan"), float("nan")]),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    done = lossdoctor("read", *(str(tmp_path / argument) if argument in files else argument for argument in arguments))
    said = done.stderr.decode()
    assert done.returncode == status, said
    assert word in said
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 1


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    import os

    path = tmp_path / "log"
    path.write_text("loss\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    assert "cannot read" in lossdoctor("read", str(path)).stderr.decode()


def test_the_document_tells_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lossdoctor.readers.parts.roles import ROLES

    document = (Path(__file__).parents[2] / "docs" / "reading-logs.md").read_text(encoding="utf-8")
    assert [role for role in ROLES if f"`{role}`" not in document] == []
    (tmp_path / "trainer_state.json").write_bytes(SAMPLE["hf_state"].content)
    monkeypatch.chdir(tmp_path)
    exec(document.split("```python\n")[1].split("```")[0], {})


def test_a_folder_of_losses_that_are_no_numbers_is_compared(tmp_path: Path) -> None:
    import warnings

    from lossdoctor.readers import read

    (tmp_path / "a.csv").write_text("step,loss\n0,2\n1,nan\n2,nan\n3,nan\n")
    (tmp_path / "b.csv").write_text("step,loss\n0,inf\n1,-inf\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path).verdict == "loss-not-finite"


def test_the_command_that_tells_more_of_the_worst_runs_from_here(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss\n0,2\n1,nan\n2,nan\n3,nan\n")
    (tmp_path / "b.csv").write_text("step,loss\n0,2\n1,1.9\n2,1.8\n")
    said = lossdoctor("read", str(tmp_path)).stdout.decode()
    assert f"lossdoctor read {tmp_path / 'a.csv'}" in said
