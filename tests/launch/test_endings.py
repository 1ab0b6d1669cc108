"""What `lossdoctor run` says and leaves of scripts that train, that fail, and that do neither."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Result, Shell

TRAIN = """
import os, signal, sys, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(32, 4), torch.randint(0, 3, (32,))
for step in range(40):
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 10:
        time.sleep(0.6)  # longer than the record waits between two flushes
    if step == 20:
        EVENT
print("trained")
"""


def train(shell: Shell, event: str = "pass", *options: str, script: str = TRAIN) -> tuple[Result, dict[str, Any]]:
    """Watch the training with something that happens at its step 20; return what the process left and its report."""
    shell.write("train.py", script.replace("EVENT", event))
    told = shell.doctor("run", "--json", "report.json", *options, "train.py")
    report = json.loads((shell.folder / "report.json").read_text())
    assert isinstance(report, dict)
    return told, report


def report_of(shell: Shell, text: str, *options: str) -> tuple[Result, dict[str, Any]]:
    return train(shell, "pass", *options, script=text)


@pytest.mark.parametrize("text", ["", "print('hello')", "import json, math", "x = 1 / 1"])
def test_a_script_that_trains_nothing(shell: Shell, text: str) -> None:
    told, report = report_of(shell, text)
    assert told.status == 0
    assert "nothing was trained" in told.err.lower()
    assert report["verdict"]["slug"] == "undetermined"
    assert not (shell.folder / ".lossdoctor").exists()
    assert len(told.err.splitlines()) < 8


def test_a_script_that_fails_before_it_trains_is_reported_all_the_same(shell: Shell) -> None:
    told, report = report_of(shell, "1 / 0")
    assert told.status == 1
    assert told.err.index("ZeroDivisionError") < told.err.index("lossdoctor:")
    assert report["run"]["ended"]["exception"] == "ZeroDivisionError"
    assert report["run"]["ended"]["how"] == "exception"
    assert report["run"]["script"] == "train.py"


def test_a_syntax_error_is_pythons_and_the_status_1(shell: Shell) -> None:
    told, report = report_of(shell, "def f(:\n    pass")
    assert told.status == 1
    assert told.err.splitlines()[0].lstrip().startswith("File ")
    assert "Traceback" not in told.err
    assert report["run"]["ended"]["exception"] == "SyntaxError"


def test_our_words_come_after_the_scripts(shell: Shell) -> None:
    shell.write("train.py", "import atexit, sys\natexit.register(lambda: print('late', file=sys.stderr))\nprint('words', file=sys.stderr)")
    lines = shell.doctor("run", "train.py").err.splitlines()
    assert lines[:2] == ["words", "late"]
    assert lines[2].startswith("lossdoctor: ")


def test_quiet_says_nothing(shell: Shell) -> None:
    told, _ = train(shell, "pass", "--quiet", script="print('hello')")
    assert (told.out, told.err) == ("hello\n", "")


def test_a_report_that_cannot_be_written_is_one_sentence(shell: Shell) -> None:
    (shell.folder / "gone").mkdir()
    shell.write("train.py", "import os\nos.rmdir('gone')\nprint('done')")
    told = shell.doctor("run", "--quiet", "--json", "gone/report.json", "train.py")
    assert (told.status, told.out) == (0, "done\n")
    assert len(told.err.splitlines()) == 1
    assert told.err.startswith("lossdoctor: ")
    assert "gone/report.json" in told.err


def test_standard_error_that_nobody_reads_changes_nothing(shell: Shell) -> None:
    shell.write("train.py", "import sys; sys.exit(5)")
    process = shell.start(sys.executable, str(shell.entry), "run", "train.py")
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(60) == 5


def test_an_error_of_ours_changes_nothing(shell: Shell) -> None:
    """Stand-in for a broken part of ours: a module that cannot be imported in the supervisor."""
    shell.write("broken/numpy.py", "raise RuntimeError('broken on purpose')")
    shell.write("train.py", "import sys; sys.exit(int('numpy' in sys.modules) + 6)")
    shell.environ["PYTHONPATH"] = f"{shell.folder / 'broken'}:{shell.environ['PYTHONPATH']}"
    told = shell.doctor("run", "train.py")
    assert told.status == 6
    assert told.err.count("\n") == 1
    assert "broken on purpose" in told.err
    assert "LOSSDOCTOR_DEBUG=1" in told.err
    shell.environ["LOSSDOCTOR_DEBUG"] = "1"
    assert "Traceback" in shell.doctor("run", "train.py").err


# Scripts that train: torch's import makes each of these slow. -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "status", "how", "exception"),
    [
        ("pass", 0, "returned", None),
        ("1 / 0", 1, "exception", "ZeroDivisionError"),
        ("sys.exit(3)", 3, "exit", None),
        ("raise KeyboardInterrupt", -signal.SIGINT, "exception", "KeyboardInterrupt"),
        ("os._exit(4)", 4, "exit", None),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "killed", None),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "signal", None),
    ],
)
def test_a_training_is_diagnosed_however_it_ends(shell: Shell, event: str, status: int, how: str, exception: str | None) -> None:
    told, report = train(shell, event)
    assert told.status == status
    assert report["run"]["ended"]["how"] == how
    assert report["run"]["ended"]["status"] == status
    assert report["run"]["ended"]["exception"] == exception
    assert report["vitals"]["steps"] >= (40 if event == "pass" else 21 if exception or "sys.exit" in event else 10)
    (folder,) = (shell.folder / ".lossdoctor").glob("*/")
    assert json.loads((folder / "end.json").read_text())["how"] == how
    assert json.loads((folder / "diagnosis.json").read_text())["verdict"] == report["verdict"]


def test_a_script_that_is_killed_at_once_is_not_said_to_have_trained_nothing(shell: Shell) -> None:
    told, report = report_of(shell, "import os\nos.kill(os.getpid(), 9)")
    assert told.status == -signal.SIGKILL
    assert "SIGKILL" in told.err
    assert report["verdict"]["slug"] == "undetermined"


def test_a_folder_that_cannot_be_made_is_told_and_keeps_no_script_from_running(shell: Shell) -> None:
    shell.write("file", "")
    told, report = train(shell, "pass", "--out", "file/runs", script="print('ran')")
    assert (told.status, told.out) == (0, "ran\n")
    assert "cannot be written to" in told.err
    assert any("file/runs" in note for note in report["notes"])


@pytest.mark.slow
def test_a_training_that_changes_its_folder_is_recorded_where_it_began(shell: Shell) -> None:
    (shell.folder / "elsewhere").mkdir()
    told, report = train(shell, script=TRAIN.replace("import torch", "import torch; os.chdir('elsewhere')").replace("EVENT", "pass"))
    assert told.status == 0
    assert report["vitals"]["steps"] == 40
    assert len(list((shell.folder / ".lossdoctor").glob("*/run.json"))) == 1
    assert list((shell.folder / "elsewhere").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers(shell: Shell, method: str) -> None:
    text = f"""
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3

def main():
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context="{method}"):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    print("trained")

if __name__ == "__main__":
    main()
"""
    told, report = report_of(shell, text)
    assert (told.status, told.out) == (0, "trained\n")
    assert report["vitals"]["steps"] == 8


@pytest.mark.slow
def test_max_steps_ends_the_recording_and_not_the_script(shell: Shell) -> None:
    told, report = train(shell, "pass", "--max-steps", "10")
    assert told.out == "trained\n"
    assert 10 <= report["vitals"]["steps"] <= 11


@pytest.mark.slow
def test_fail_on_turns_success_into_failure_and_nothing_else(shell: Shell) -> None:
    missing = TRAIN.replace("    optimizer.zero_grad()\n", "").replace("range(40)", "range(100)")
    told, report = train(shell, "pass", "--fail-on", "error", script=missing)
    assert report["verdict"]["slug"] == "zero-grad-missing"
    assert told.status == 1
    assert train(shell, "sys.exit(4)", "--fail-on", "error", script=missing)[0].status == 4
    assert train(shell, "pass", script=missing)[0].status == 0
    assert train(shell, "pass", "--fail-on", "error", "--ignore", "LOP", script=missing)[0].status == 0


@pytest.mark.slow
def test_the_report_stands_soon_after_the_end(shell: Shell) -> None:
    """The bar is 2 s; the limit here is wider, because the machine that tests may be busy."""
    shell.write("train.py", TRAIN.replace("EVENT", "pass") + "\nprint(time.time(), flush=True)")
    process = shell.start(sys.executable, str(shell.entry), "run", "train.py")
    told = shell.finish(process, "")
    assert time.time() - float(told.out.split()[-1]) < 10
    assert os.path.exists(shell.folder / ".lossdoctor")


@pytest.mark.slow
def test_a_script_that_watches_itself_shares_the_record(shell: Shell) -> None:
    text = TRAIN.replace("for step", "import lossdoctor\nwith lossdoctor.watch(model) as doctor:\n  for step").replace("\n    ", "\n      ")
    told, report = report_of(shell, text.replace("EVENT", "pass") + "\nprint(doctor.diagnosis.vitals['steps'] > 0)")
    assert (told.status, told.out) == (0, "trained\nTrue\n")
    assert report["vitals"]["steps"] == 40
    assert len(list((shell.folder / ".lossdoctor").glob("*/run.json"))) == 1


@pytest.mark.slow
def test_a_training_in_a_thread_that_outlives_main_is_recorded_whole(shell: Shell) -> None:
    text = (
        TRAIN.replace("for step", "def train():\n  for step")
        .replace("\n    ", "\n      ")
        .replace('print("trained")', "  print('trained')")
    )
    told, report = report_of(shell, text.replace("EVENT", "pass") + "\nimport threading\nthreading.Thread(target=train).start()\n")
    assert (told.status, told.out) == (0, "trained\n")
    assert report["vitals"]["steps"] == 40
