"""Levers on real loaders and models: what they change, and what they must leave as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.machine.choice import Lever, levers, together
from lossdoctor.machine.pace import agreement, interval, pace
from lossdoctor.machine.speed import hopeless
from lossdoctor.machine.whole import PROOFS, Way

TRAINING = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from lossdoctor.machine.levers import LEVERS
torch.manual_seed(0)
{lever}
data = TensorDataset(torch.randn(96, 3, 8, 8), torch.randint(0, 2, (96,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for epoch in range(2):
    for images, labels in loader:
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
convolution = model[0].weight
facts = dict(dtype=str(output.dtype), last=convolution.is_contiguous(memory_format=torch.channels_last), rows=len(images))
import json
print(json.dumps(dict(losses=losses, threads=torch.get_num_threads(), fused=optimizer.param_groups[0]["fused"], **facts)))
"""


def trained(lever: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", TRAINING.format(lever=lever)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return trained()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lever", "losses", "shows"),
    [
        ("LEVERS['whole_batches']()", "same", {}),
        ("LEVERS['workers'](1)", "follow", {}),  # loaders that keep their workers draw another order from the second epoch on
        ("LEVERS['optimiser_kernel']('fused')", "same", {"fused": True}),
        ("LEVERS['channels_last']()", "same", {"last": True}),
        ("LEVERS['autocast']('bfloat16')", "follow", {"dtype": "torch.float32"}),
        ("LEVERS['threads'](2)", "same", {"threads": 2}),
        ("LEVERS['batch'](2, 1.4)", "differ", {"rows": 16}),
    ],
)
def test_a_lever_does_what_it_says_and_nothing_else(plain: dict[str, Any], lever: str, losses: str, shows: dict[str, Any]) -> None:
    found = trained(lever)
    assert {name: found[name] for name in shows} == shows
    assert all(plain[name] != value for name, value in shows.items() if name != "dtype")
    if losses != "differ":
        assert len(found["losses"]) == len(plain["losses"])
        assert agreement(np.array(plain["losses"]), np.array(found["losses"])) == losses


class Rows(Dataset):
    """Rows of arrays, with a change that a lever must notice or may take over."""

    def __init__(self, change: str) -> None:
        self.inputs = np.arange(40, dtype=np.float32).reshape(20, 2)
        self.change = change

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        row = self.inputs[index]
        if self.change == "random":
            return row + np.random.rand()
        if self.change == "sum":
            return row / row.sum()
        if self.change == "scaled":
            return {"x": row * 2, "y": row[..., 0]}
        return row, index


@pytest.mark.parametrize(("change", "proven"), [("none", True), ("scaled", True), ("random", False), ("sum", False)])
def test_whole_batches_are_taken_only_where_they_are_the_same(change: str, proven: bool) -> None:
    data, way = Rows(change), Way()
    batches = [[3, 1, 7], [0, 2, 5], [19, 4, 4]]
    assert len(batches) == PROOFS
    for indices, picked in zip(batches, DataLoader(data, batch_sampler=batches), strict=True):
        way.compare(data, indices, picked)
    assert way.proven is proven
    assert way.hopeless is not proven


def test_whole_batches_of_tensors_equal_those_of_a_loader() -> None:
    data, way = TensorDataset(torch.randn(30, 4), torch.arange(30)), Way()
    batches = [torch.randperm(30)[:8].tolist() for _ in range(6)]
    for number, (indices, picked) in enumerate(zip(batches, DataLoader(data, batch_sampler=batches), strict=True)):
        if number < PROOFS:
            way.compare(data, indices, picked)
        else:
            assert all(torch.equal(one, other) for one, other in zip(way.take(data, indices), picked, strict=True))


def control(**facts: Any) -> Training:
    return Training(facts={"optimizer": {"name": "Adam"}, "threads": 1, **facts})


def names(training: Training, cores: int = 4) -> set[str]:
    return {lever.treatment["name"] for lever in levers(training, cores)}


def test_levers_follow_what_the_script_has() -> None:
    loader = {"workers": 0, "batch_size": 8, "shuffle": True}
    assert names(control(loader=loader)) >= {"whole_batches", "workers", "cached", "batch", "threads", "autocast", "optimiser_kernel"}
    assert "workers" not in names(control(loader=loader | {"workers": 2}))
    assert not names(control()) & {"whole_batches", "workers", "cached", "batch"}
    assert "channels_last" in names(control(model={"layers": [{"kind": "Conv2d"}]}))
    assert "threads" not in names(control(), cores=1)


def test_what_cannot_pay_is_not_tried() -> None:
    optimiser = next(lever for lever in levers(control(), 4) if lever.treatment["name"] == "optimiser_kernel")
    assert hopeless(optimiser, {"optimiser": 0.02}, {})
    assert not hopeless(optimiser, {"optimiser": 0.5}, {})
    half = next(lever for lever in levers(control(), 4) if lever.treatment["name"] == "autocast")
    assert "30 times as long" in hopeless(half, {"forward": 0.9}, {"peaks": {"flops": 3e11, "half_flops": 1e10}})


def test_of_a_group_the_best_is_combined_and_a_ceiling_never() -> None:
    found = together(
        [
            (Lever("whole", {}, "fetching", ""), 3.0),
            (Lever("workers", {}, "workers", ""), 2.0),
            (Lever("ceiling", {}, "ceiling", "", ceiling=True), 4.0),
            (Lever("fused", {}, "optimiser", ""), 1.2),
        ]
    )
    assert [lever.title for lever in found] == ["whole", "fused"]


def walls(seconds: list[float]) -> Training:
    return Training(signals={"wall": Series.of(np.cumsum(seconds)), "loss": Series.of([1.0] * len(seconds))})


def test_a_pace_heeds_what_recurs_and_not_what_disturbs_once() -> None:
    every_fourth = [0.01, 0.01, 0.01, 0.05] * 20
    found = pace(walls(every_fourth), 5)
    assert found is not None
    assert found.step_seconds == pytest.approx(0.02, rel=0.1)
    disturbed = list(every_fourth)
    disturbed[30:34] = [0.5] * 4
    again = pace(walls(disturbed), 5)
    assert again is not None
    assert again.step_seconds == pytest.approx(found.step_seconds, rel=0.05)


def test_time_in_the_queue_for_a_core_does_not_count() -> None:
    quiet, busy = [0.01] * 40, [0.03] * 40
    queued = np.cumsum([0.02] * 40)
    found = pace(walls(busy), 5, list(queued))
    assert found is not None
    assert found.step_seconds == pytest.approx(quiet[0], rel=1e-6)


def test_a_validation_pass_is_no_part_of_a_step() -> None:
    training = walls([0.01] * 30 + [1.01] + [0.01] * 30)
    training.rows["validation"] = [Row(30, {"began": 0.301, "seconds": 1.0})]
    found = pace(training, 5)
    assert found is not None
    assert found.step_seconds == pytest.approx(0.01, rel=0.01)


def test_losses_are_the_same_follow_or_differ() -> None:
    control = np.linspace(2.0, 1.0, 50)
    assert agreement(control, control * (1 + 1e-7)) == "same"
    assert agreement(control, control + 0.01 * np.sin(np.arange(50))) == "follow"
    assert agreement(control, control * 1.5) == "differ"
    assert agreement(control, np.full(50, np.nan)) == "differ"


def test_the_interval_is_students() -> None:
    mean, low, high = interval([1.9, 2.0, 2.1])
    assert mean == pytest.approx(2.0, rel=0.01)
    assert low < 1.9 < 2.1 < high


@pytest.mark.slow
def test_speed_finds_the_slow_loader_and_leaves_nothing(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    inputs = torch.randn(20000, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=500, shuffle=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(200):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        open("epochs.txt", "a").write("one more\\n")
    """
    import textwrap

    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    options = ["--seconds", "150", "--lever", "whole_batches", "--lever", "optimiser_kernel", "--json", "report.json"]
    command = [sys.executable, "-m", "lossdoctor", "speed", "-q", *options, "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    speed = json.loads((tmp_path / "report.json").read_text())["vitals"]["speed"]
    whole = next(row for row in speed["levers"] if row["title"] == "whole batches")
    if not whole["pairs"]:
        pytest.skip("this machine was too busy for a single pair")
    assert whole["factor"] > 2
    assert whole["losses"] == "same"
    assert not (tmp_path / "epochs.txt").exists()
