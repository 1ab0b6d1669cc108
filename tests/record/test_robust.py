"""We never kill a run, and the record survives: errors of ours, kills, full disks, forks, long runs."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.loops import batch, network
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lossdoctor.core import store
from lossdoctor.core.store import load_run
from lossdoctor.record import Recorder, arm, writer
from lossdoctor.record.heads import Heads
from lossdoctor.record.parameters import Roots
from lossdoctor.record.resets import Resets
from lossdoctor.record.samples import Samples
from lossdoctor.record.tracks import Track
from lossdoctor.record.window import Window
from lossdoctor.record.writer import Writer

LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    loss = nn.functional.cross_entropy(model(torch.randn(8, 3)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
"""
ARMED = """
import sys
from pathlib import Path
from lossdoctor.record import arm
recorder = arm(Path("runs"), script="script.py")
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


def run_script(folder: Path, body: str, wait: bool = True) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(ARMED + LOOP + textwrap.dedent(body))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if wait:
        process.out, process.err = process.communicate(timeout=400)  # type: ignore[attr-defined]
    return process


def only_run(out: Path) -> Path:
    (folder,) = [path for path in out.iterdir() if path.is_dir()]
    return folder


def train(recorder: Recorder, steps: int = 12) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for seed in range(steps):
        x, y = batch(seed=seed)
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    recorder.stop(how="returned", status=0)
    return losses


def fail(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("ours")


def test_a_probe_that_raises_is_dropped_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train(Recorder.silent())
    found = Samples.function
    monkeypatch.setattr(
        Samples, "function", lambda self, name: fail if name in ("gradient_norms", "describe_inputs") else found(self, name)
    )
    recorder = arm(tmp_path / "runs", script="x")
    assert train(recorder) == plain
    run = load_run(only_run(tmp_path / "runs"))
    assert run.notes == ["broke: batch: RuntimeError: ours", "broke: gradient: RuntimeError: ours"]
    assert run.trainings[0].has("weight_norms")
    assert not run.trainings[0].has("grad_norms")


PARTS = [(Roots, "of"), (Window, "__init__"), (Resets, "keep"), (Resets, "look"), (Track, "add"), (Samples, "begin"), (Heads, "write")]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part[0].__name__}.{part[1]}")
def test_a_part_of_the_observer_that_raises_is_dropped(part: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train(Recorder.silent())
    recorder = arm(tmp_path / "runs", script="x")
    monkeypatch.setattr(*part, fail)
    assert train(recorder) == plain
    notes = (
        [line["text"] for line in recorder._lines if line["kind"] == "note"] if recorder.folder is None else load_run(recorder.folder).notes
    )
    assert [note for note in notes if note.startswith("broke: ") and note.endswith("RuntimeError: ours")]


def test_a_killed_run_is_readable_up_to_the_last_flush(tmp_path: Path) -> None:
    process = run_script(tmp_path, "while True: step(); print(flush=True)", wait=False)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not list(tmp_path.glob("runs/*/record-*.jsonl")):
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    run = load_run(only_run(tmp_path / "runs"))
    assert run.trainings[0].steps > 1
    assert run.facts["ended"] == {}


def test_an_exit_or_an_error_loses_nothing(tmp_path: Path) -> None:
    for number, end in enumerate(("raise ValueError('theirs')", "sys.exit(3)", "pass")):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = run_script(folder, f"for _ in range(7): step()\n{end}")
        assert process.returncode == (1, 3, 0)[number]
        assert load_run(only_run(folder / "runs")).trainings[0].steps == 7


def test_the_folder_is_resolved_when_armed_and_made_with_the_first_step(tmp_path: Path) -> None:
    process = run_script(tmp_path, "import os; os.mkdir('there'); os.chdir('there'); print(recorder.folder, recorder.started); step()")
    assert process.out == "None False\n"  # type: ignore[attr-defined]
    folder = only_run(tmp_path / "runs")
    assert re.fullmatch(r"\d{8}-\d{6}-\d+", folder.name)
    head = json.loads((folder / "run.json").read_text())
    assert (head["format"], head["script"], head["torch"]) == (store.FORMAT, "script.py", torch.__version__)
    assert writer.FORMAT == store.FORMAT


def test_nothing_is_written_where_nothing_was_trained(tmp_path: Path) -> None:
    run_script(tmp_path, "model(torch.randn(2, 3))")
    assert not (tmp_path / "runs").exists()


def test_children_write_nothing(tmp_path: Path) -> None:
    body = """
    import os
    step()
    pid = os.fork()
    if pid == 0:
        for _ in range(5000): step()
        sys.exit(0)
    os.waitpid(pid, 0)
    for _ in range(3): step()
    """
    run_script(tmp_path, body)
    folder = only_run(tmp_path / "runs")
    assert len(list(folder.glob("record-*"))) == 1
    assert load_run(folder).trainings[0].steps == 4


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_loader_workers_are_left_alone(context: str, tmp_path: Path) -> None:
    recorder = arm(tmp_path / "runs", script="x")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(*batch(32)), batch_size=8, num_workers=1, multiprocessing_context=context):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    recorder.stop()
    (folder,) = [only_run(tmp_path / "runs")]
    assert len(list(folder.glob("record-*"))) == 1
    assert load_run(folder).trainings[0].facts["loader"]["workers"] == 1


def test_a_full_disk_ends_the_record_and_not_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train(Recorder.silent(), 40)
    real, written = os.write, []

    def full(stream: int, data: Any) -> int:
        written.append(len(data))
        if sum(written) > 3000:
            raise OSError(28, "No space left on device")
        return real(stream, data[: max(1, len(data) // 2)])

    monkeypatch.setattr(writer.os, "write", full)
    monkeypatch.setattr("lossdoctor.record.events.FLUSH_SECONDS", 0.0)
    recorder = arm(tmp_path / "runs", script="x")
    losses = train(recorder, 40)
    monkeypatch.undo()
    assert losses == plain
    load_run(only_run(tmp_path / "runs"))


def test_the_private_file_is_for_its_owner_and_the_folder_ignores_itself(tmp_path: Path) -> None:
    recorder = arm(tmp_path / ".lossdoctor", script="x", private={"argv": ["a"]}, facts={"seed": 4})
    train(recorder)
    folder = only_run(tmp_path / ".lossdoctor")
    assert stat.S_IMODE((folder / "private.json").stat().st_mode) == 0o600
    assert json.loads((folder / "private.json").read_text()) == {"argv": ["a"]}
    assert (tmp_path / ".lossdoctor" / ".gitignore").read_text() == "*\n"
    assert load_run(folder).facts["seed"] == 4
    assert load_run(folder).facts["ended"]["how"] == "returned"


def test_the_last_twenty_runs_are_kept(tmp_path: Path) -> None:
    for number in range(24):
        run = Writer(tmp_path, f"202501{number + 1:02d}-000000-{2**22 + number}", {"script": "x"})
        run.append([{"kind": "note", "text": "x"}])
        run.close()
    names = sorted(path.name[:8] for path in tmp_path.iterdir() if path.is_dir())
    assert names == [f"202501{number + 1:02d}" for number in range(4, 24)]


def test_a_long_run_stays_within_its_bound_and_keeps_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(writer, "FOLDER_BYTES", 120_000)
    monkeypatch.setattr("lossdoctor.record.events.FLUSH_ROWS", 50)
    recorder = arm(tmp_path / "runs", script="x")
    losses = train(recorder, 3000)
    folder = only_run(tmp_path / "runs")
    assert sum(path.stat().st_size for path in folder.glob("record-*")) < 160_000
    (training,) = load_run(folder).trainings
    loss = training.series("loss")
    assert loss.steps[0] == 0
    assert loss.steps[-1] == 2999
    assert len(loss) > 200
    assert (loss.steps[1:] > loss.steps[:-1]).all()
    assert (loss.values == [losses[step] for step in loss.steps]).all()
    assert training.facts["parameters"]


def test_stop_can_be_called_again_and_before_anything(tmp_path: Path) -> None:
    recorder = arm(tmp_path / "runs", script="x")
    recorder.stop()
    recorder.stop(how="returned", status=0)
    assert (recorder.folder, recorder.started) == (None, False)
