"""What one step is, seen on real loops: the recorded values are those that the loop itself computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from lossdoctor.core.run import Run
from lossdoctor.core.store import load_run
from lossdoctor.record import arm


def recorded(out: Path, loop: Callable[[], object]) -> tuple[Run, object]:
    recorder = arm(out, script="loop")
    try:
        result = loop()
    finally:
        recorder.stop(how="returned", status=0)
    assert recorder.folder is not None
    return load_run(recorder.folder), result


def test_losses_of_a_plain_loop_are_recorded_exactly(tmp_path: Path) -> None:
    def loop() -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(8, 3)), torch.randint(0, 2, (8,)))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    run, losses = recorded(tmp_path / "runs", loop)
    (training,) = run.trainings
    assert training.series("loss").values.tolist() == losses
    assert training.series("batch_rows").values.tolist() == [8.0] * 30
    assert [parameter["name"] for parameter in training.facts["parameters"]] == ["weight", "bias"]
