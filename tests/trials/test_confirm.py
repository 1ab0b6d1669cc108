"""Real repetitions: what is broken is confirmed, what is not is not, an edit is tried without touching the file, a kill leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.fault import Treatment, faults
from lossdoctor.core.store import load_run
from lossdoctor.launch.child import way_of_isolation
from lossdoctor.trials.confirm import Candidate, Confirmer
from lossdoctor.trials.parameters import fitted

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = inputs.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(40):
    for rows in torch.randperm(256).split(32):
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, nn.functional.mse_loss(model(inputs), targets).item())
"""
BROKEN = SCRIPT.replace("        optimizer.zero_grad()\n", "")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(way_of_isolation() != "namespaces", reason="namespaces are refused here")]


def lossdoctor(folder: Path, *arguments: str, words: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lossdoctor", *arguments]
    return subprocess.run(command, cwd=folder, input=words, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script whose gradients pile up, watched."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "train.py").write_text(BROKEN)
    assert lossdoctor(folder, "run", "--quiet", "--workup", "none", "train.py").returncode == 0
    return folder


def test_a_planted_fault_is_confirmed_and_the_edit_is_written_when_asked(broken: Path) -> None:
    done = lossdoctor(broken, "confirm", "--json", "report.json", "--apply", words="y\n")
    assert done.returncode == 0, done.stderr
    report = json.loads((broken / "report.json").read_text())
    finding = next(each for each in report["findings"] if each["slug"] == "zero-grad-missing")
    assert finding["confirmed"] == "confirmed"
    assert "trial of clear_gradients for zero-grad-missing" in done.stderr
    assert "the edited script was tried: confirmed" in done.stderr
    assert "+        optimizer.zero_grad()" in done.stdout
    assert (broken / "train.py.orig").read_text() == BROKEN
    assert "optimizer.zero_grad()" in (broken / "train.py").read_text()
    shown = lossdoctor(broken, "report").stdout
    assert "confirmed by a trial" in shown
    (broken / "train.py").write_text(BROKEN)


def test_nothing_is_written_without_a_yes(broken: Path) -> None:
    done = lossdoctor(broken, "confirm", "--quiet", "--apply")
    assert "Write this into" in done.stderr
    assert (broken / "train.py").read_text() == BROKEN


@pytest.mark.parametrize("name", ["placebo", "clear_gradients", "clip"])
def test_on_a_healthy_run_nothing_is_confirmed(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert lossdoctor(tmp_path, "run", "--quiet", "--workup", "none", "train.py").returncode == 0
    folder = next(tmp_path.glob(".lossdoctor/*/run.json")).parent
    run = load_run(folder)
    fault = faults()["zero-grad-missing"]
    finding = Finding(fault.code, fault.slug, fault.title, fault.family)
    parameters: dict[str, Any] = {"norm": 1e6} if name == "clip" else {}
    value = fitted(Treatment(name, parameters), finding, run.trainings[0])
    assert Confirmer(folder, run).ask(Candidate(finding, fault, value), ()).verdict in ("refuted", "unclear")


def test_experiments_are_made_in_the_treated_repetition(broken: Path) -> None:
    folder = next(broken.glob(".lossdoctor/*/run.json")).parent
    run = load_run(folder)
    fault = faults()["zero-grad-missing"]
    finding = Finding(fault.code, fault.slug, fault.title, fault.family)
    candidate = Candidate(finding, fault, {"name": "clear_gradients", "parameters": {}})
    trial = Confirmer(folder, run).ask(candidate, (), look=True)
    assert trial.verdict == "confirmed"
    assert trial.treated is not None
    assert {"mixing", "held_out"} <= set(trial.treated.trainings[0].experiments)
    assert trial.treated.trainings[0].experiments["mixing"].status == "done"


def test_a_killed_trial_takes_its_repetition_along(broken: Path) -> None:
    (broken / "train.py").write_text(BROKEN.replace("range(40)", "range(40_000_000)"))
    process = subprocess.Popen([sys.executable, "-m", "lossdoctor", "confirm", "--quiet"], cwd=broken)
    marker = f"lossdoctor-trial-{process.pid}-"
    until = time.monotonic() + 60
    while not children(marker) and time.monotonic() < until:
        time.sleep(0.2)
    assert children(marker)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while children(marker) and time.monotonic() < until:
        time.sleep(0.2)
    assert not children(marker)
    (broken / "train.py").write_text(BROKEN)


def children(marker: str) -> list[str]:
    """Return the processes whose command line holds a text."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [each.parent.name] if marker in each.read_text(errors="replace") else []
        except OSError:
            continue
    return found
