"""Schedulers in real loops: what is recorded of them, and which of them are said to be misused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tests.record.loops import recorded
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler

from lossdoctor.core.run import Training
from lossdoctor.faults.opt.scheduler_misused import detect

EPOCHS, BATCHES = 8, 10
PRESENT = 0.8


def train(make: Callable[[Any], Any], each: str, metric: str = "", rate: float = 0.02) -> None:
    """Learn a noisy line between two classes, with a scheduler that is stepped each `batch`, each `epoch`, or never."""
    torch.manual_seed(0)
    x = torch.randn(BATCHES * 16 + 200, 5)
    y = ((x[:, 0] + 0.8 * torch.randn(len(x))) > 0).long()
    rows, unseen = slice(200, None), slice(0, 200)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[rows], y[rows]), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scheduler = make(optimizer)
    for _ in range(EPOCHS):
        model.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            if each == "batch":
                scheduler.step()
        model.eval()
        with torch.no_grad():
            output = model(x[unseen])
            loss = functional.cross_entropy(output, y[unseen]).item()
            score = (output.argmax(1) == y[unseen]).float().mean().item()
        if metric:
            scheduler.step({"loss": loss, "score": score}[metric])
        elif each == "epoch":
            scheduler.step()


def watched(tmp_path: Path, make: Callable[[Any], Any], each: str = "", metric: str = "", rate: float = 0.02) -> Training:
    run, _ = recorded(tmp_path, lambda: train(make, each, metric, rate))
    return run.trainings[0]


def strength(training: Training, severity: str | None = None) -> float:
    found = detect(training)
    return found.strength if found is not None and found.severity == severity else 0.0


def plateau(mode: Literal["min", "max"]) -> Callable[[Any], Any]:
    return lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, factor=0.2, patience=0, threshold=0.0)


def test_settings_steps_and_metrics_are_recorded(tmp_path: Path) -> None:
    training = watched(tmp_path, plateau("min"), metric="loss")
    (schedule,) = training.fact("schedules")
    assert schedule["name"] == "ReduceLROnPlateau"
    assert (schedule["mode"], schedule["factor"], schedule["calls"], schedule["stray"]) == ("min", 0.2, EPOCHS, False)
    assert len(schedule["metrics"]) == EPOCHS


def test_the_parts_of_a_sequence_are_no_schedules_of_their_own(tmp_path: Path) -> None:
    def make(optimizer: Any) -> Any:
        warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
        return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS - 2)], [2])

    training = watched(tmp_path, make, "epoch")
    assert [each["name"] for each in training.fact("schedules")] == ["SequentialLR"]
    assert detect(training) is None


@pytest.mark.parametrize(
    ("make", "each", "metric", "rate"),
    [
        pytest.param(plateau("max"), "", "loss", 0.004, id="a loss watched as a score"),
        pytest.param(lambda o: lr_scheduler.StepLR(o, 3, 0.1), "batch", "", 0.002, id="step lengths in epochs, by batch"),
        pytest.param(lambda o: lr_scheduler.MultiStepLR(o, [4, 6], 0.01), "batch", "", 0.002, id="milestones in epochs, by batch"),
        pytest.param(lambda o: lr_scheduler.ExponentialLR(o, 0.7), "batch", "", 0.002, id="a decay for epochs, by batch"),
        pytest.param(lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS), "batch", "", 0.02, id="a cosine over epochs, by batch"),
        pytest.param(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, EPOCHS), "batch", "", 0.002, id="a line over epochs, by batch"),
        pytest.param(
            lambda o: lr_scheduler.OneCycleLR(o, 0.02, EPOCHS * BATCHES), "epoch", "", 0.02, id="one cycle over batches, by epoch"
        ),
        pytest.param(lambda o: lr_scheduler.LambdaLR(o, lambda step: step // 1000), "batch", "", 0.02, id="a factor in whole numbers"),
    ],
)
def test_misused(tmp_path: Path, make: Callable[[Any], Any], each: str, metric: str, rate: float) -> None:
    assert strength(watched(tmp_path, make, each, metric, rate)) >= PRESENT


@pytest.mark.parametrize(
    ("make", "each", "metric"),
    [
        pytest.param(plateau("min"), "", "loss", id="a loss watched as one"),
        pytest.param(plateau("max"), "", "score", id="a score watched as one"),
        pytest.param(lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS), "epoch", "", id="a cosine to the very end"),
        pytest.param(lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS * BATCHES), "batch", "", id="the same by batch"),
        pytest.param(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 20), "batch", "", id="warm restarts"),
        pytest.param(lambda o: lr_scheduler.OneCycleLR(o, 0.02, EPOCHS * BATCHES), "batch", "", id="one cycle"),
        pytest.param(lambda o: lr_scheduler.StepLR(o, 3, 0.1), "epoch", "", id="step lengths in epochs"),
        pytest.param(lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 20)), "batch", "", id="a warm-up that then holds"),
        pytest.param(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, EPOCHS * BATCHES), "batch", "", id="a line to the very end"),
    ],
)
def test_in_order(tmp_path: Path, make: Callable[[Any], Any], each: str, metric: str) -> None:
    assert strength(watched(tmp_path, make, each, metric)) < PRESENT


def test_a_scheduler_that_never_steps_is_advice(tmp_path: Path) -> None:
    assert strength(watched(tmp_path, lambda o: lr_scheduler.StepLR(o, 3, 0.1)), "advice") >= PRESENT
