"""A checked script is ended when enough was seen of it, and leaves nothing but its run."""

import json
import subprocess
import sys

import pytest

from lossdoctor.checking import undone
from lossdoctor.core.run import Experiment, Run, Training
from lossdoctor.diagnose.plan import CHECKS

pytestmark = pytest.mark.slow

HEAD = """
import torch
torch.manual_seed(0)
inputs = torch.randn(4000, 4)
targets = inputs.sum(1, keepdim=True)
data = torch.utils.data.TensorDataset(inputs, targets)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
TRAIN = """
for epoch in range(1000):
    for x, y in torch.utils.data.DataLoader(data, 8, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        torch.nn.functional.mse_loss(model(inputs[:100]), targets[:100])
    torch.save(model.state_dict(), "checkpoint.pt")
"""


def check(folder, script, *options):
    (folder / "train.py").write_text(script)
    report = folder / "report.json"
    command = [sys.executable, "-m", "lossdoctor", "check", "--seconds", "90", "--json", str(report), *options, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    return done, json.loads(report.read_text()) if report.exists() else None


def test_a_long_script_is_ended_after_a_validation_pass_and_changes_nothing(tmp_path):
    done, report = check(tmp_path, HEAD + TRAIN, "--max-steps", "120")
    assert done.returncode == 0, done.stderr
    assert report["run"]["ended"]["how"] == "stopped"
    assert 120 <= report["vitals"]["steps"] < 200
    assert {each["name"] for each in report["experiments"]} >= {"memorise", "baseline"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lossdoctor", "report.json", "train.py"]
    assert len(list((tmp_path / ".lossdoctor").glob("*/diagnosis.json"))) == 1


def test_a_script_without_a_training_is_undetermined(tmp_path):
    done, report = check(tmp_path, "print(1)\n")
    assert done.returncode == 0, done.stderr
    assert report["verdict"]["slug"] == "undetermined"
    assert "nothing was trained" in " ".join(report["notes"])


def test_the_error_of_a_script_is_told_in_its_own_words(tmp_path):
    done, report = check(tmp_path, HEAD + "raise ValueError('no such column: age')\n")
    assert "Traceback" not in done.stderr
    assert "no such column: age" in " ".join(report["notes"])


BY_HAND = """
for step in range(60):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for each in model.parameters():
            each -= 0.1 * each.grad
"""
FEW = HEAD.replace("4000", "40")
BAD = {
    "gave no batch": "for x, y in torch.utils.data.DataLoader(torch.utils.data.Subset(data, []), 8):\n    pass\n",
    "take its mean": "loss = (model(inputs) - targets) ** 2\nloss.backward()\n",
    "another number of features": "for x in (inputs[:8], inputs[:8, :3]):\n    model(x).mean().backward()\n    optimizer.step()\n",
    "cut from the model": "loss = model(inputs).detach().mean()\nloss.backward()\n",
}


@pytest.mark.parametrize("words", BAD)
def test_a_script_that_fails_is_told_in_words(tmp_path, words):
    done, report = check(tmp_path, FEW + BAD[words])
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert words in " ".join(report["notes"])


def test_a_script_without_an_optimiser_is_diagnosed(tmp_path):
    done, report = check(tmp_path, FEW.replace("optimizer =", "# optimizer =") + BY_HAND)
    assert done.returncode == 0, done.stderr
    assert report["verdict"]["slug"] == "healthy"


def test_a_script_that_is_missing_is_wrong_usage(tmp_path):
    done = subprocess.run([sys.executable, "-m", "lossdoctor", "check", "none.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such script" in done.stderr


def test_experiments_that_the_time_did_not_last_for_are_named():
    done = {name: Experiment(name, "done", 0.1, {}) for name in CHECKS if name not in ("terms", "memory")}
    assert "before terms, memory:" in undone(Run(trainings=[Training(experiments=done)]))
    assert undone(Run(trainings=[Training(experiments=dict.fromkeys(CHECKS, done["look"]))])) == ""
    assert undone(Run()) == ""
