"""The assertions of the pytest plugin: what passes, what fails, and in which words."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.assertions import Assertions

doctor = Assertions()


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return torch.randn(16, 8), torch.randint(0, 10, (16,))


def network(width=64):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 10))


def test_ten_classes_give_230(batch):
    doctor.assert_first_loss(network(), batch, functional.cross_entropy, classes=10)
    doctor.assert_first_loss(network(), batch, functional.cross_entropy, expected=2.30)


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (functional.cross_entropy, lambda: torch.randint(0, 10, (16,))),
        (functional.binary_cross_entropy_with_logits, lambda: torch.randint(0, 2, (16, 10)).float()),
        (functional.mse_loss, lambda: torch.randn(16, 10)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), lambda: torch.randint(0, 10, (16,))),
        (nn.CrossEntropyLoss(ignore_index=3), lambda: torch.randint(0, 10, (16,))),
        (nn.CrossEntropyLoss(weight=torch.linspace(0.5, 1.5, 10)), lambda: torch.randint(0, 10, (16,))),
    ],
    ids=["classes", "multi-label", "regression", "smoothed", "ignored", "weighted"],
)
def test_what_guessing_gives_follows_from_loss_and_targets(loss, target):
    torch.manual_seed(0)
    doctor.assert_first_loss(network(), (torch.randn(16, 8), target()), loss, tolerance=0.6)


def test_a_start_that_is_too_large_is_told(batch):
    model = network()
    with torch.no_grad():
        model[2].weight.mul_(100)
    with pytest.raises(AssertionError, match=r"first loss .* expected 2.303 \(ln 10.*too large"):
        doctor.assert_first_loss(model, batch, functional.cross_entropy, classes=10)


def test_memorising(batch):
    doctor.assert_memorizes(network, batch, functional.cross_entropy)
    with pytest.raises(AssertionError, match=r"not memorised in 300 steps.*too small"):
        doctor.assert_memorizes(lambda: network(2), batch, functional.cross_entropy)


def test_parameters_without_gradient_are_named(batch):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.unused, self.cut = network(), nn.Linear(8, 10), nn.Linear(8, 10)

        def forward(self, values):
            return self.body(values) + 0.0 * self.cut(values)

    doctor.assert_all_parameters_learn(network(), batch, functional.cross_entropy)
    with pytest.raises(AssertionError, match=r"no gradient: unused\.weight.*zero: cut\.weight"):
        doctor.assert_all_parameters_learn(Branch(), batch, functional.cross_entropy)


def test_mixed_examples(batch):
    class Mixing(nn.Module):
        def forward(self, values):
            return values.softmax(0)

    doctor.assert_no_batch_mixing(nn.Sequential(network(), nn.BatchNorm1d(10), nn.Dropout()), batch)
    doctor.assert_no_batch_mixing(network(), batch[0])
    with pytest.raises(AssertionError, match="influence each other"):
        doctor.assert_no_batch_mixing(nn.Sequential(network(), Mixing()), batch)


EXAMPLE = """
import torch

def test_fails(doctor):
    model = torch.nn.Linear(8, 10)
    torch.nn.init.constant_(model.weight, 50.0)
    batch = torch.randn(16, 8), torch.randint(0, 10, (16,))
    torch.nn.init.normal_(model.weight, 0, 50.0)
    doctor.assert_first_loss(model, batch, torch.nn.functional.cross_entropy, classes=10)
"""


def test_the_plugin_gives_the_fixture_and_hides_our_lines(tmp_path):
    (tmp_path / "test_model.py").write_text(EXAMPLE)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "lossdoctor.pytest_plugin", "-q", "test_model.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 failed" in done.stdout
    assert "expected 2.303 (ln 10, guessing among 10 classes)" in done.stdout
    assert "assertions.py" not in done.stdout.split("short test summary")[0].replace("test_assertions.py", "")


def test_the_page_on_checking_says_what_holds(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "check.md").read_text(encoding="utf-8")
    script, test = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "test_model.py").write_text(test)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "lossdoctor.pytest_plugin", "-q", "test_model.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 passed" in done.stdout
