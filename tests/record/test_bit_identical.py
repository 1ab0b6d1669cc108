"""Final weights, random numbers and printed losses are the same, bit for bit, with and without us."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lossdoctor.core.store import load_run
from lossdoctor.record import arm

Loop = Callable[[], Iterable[nn.Module]]


def data(rows: int = 96) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator))


def network(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.ReLU(), nn.Linear(16, 3))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Any], epochs: int = 4, clip: float = 0.0) -> None:
    validation = data(64)[:]
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            _ = (model(validation[0]).argmax(1) == validation[1]).float().mean().item()


def dropout() -> list[nn.Module]:
    model = network(nn.Dropout(0.3))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), DataLoader(data(), batch_size=16))
    return [model]


def shuffling() -> list[nn.Module]:
    model = network(nn.BatchNorm1d(16))
    train(model, torch.optim.Adam(model.parameters()), DataLoader(data(), batch_size=16, shuffle=True))
    return [model]


def workers() -> list[nn.Module]:
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data(), batch_size=16, shuffle=True, num_workers=2), epochs=2)
    return [model]


def adamw_and_schedule() -> list[nn.Module]:
    model = network(nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(4):
        train(model, optimizer, DataLoader(data(), batch_size=32, shuffle=True), epochs=1)
        schedule.step()
    return [model]


def clipping() -> list[nn.Module]:
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(data(), batch_size=16, shuffle=True), clip=0.1)
    return [model]


def lbfgs() -> list[nn.Module]:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    x, y = data()[:]

    def closure() -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)
    return [model]


def two_optimisers() -> list[nn.Module]:
    made, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)), nn.Linear(6, 1)
    first, second = torch.optim.Adam(made.parameters(), 1e-2), torch.optim.Adam(judge.parameters(), 1e-2)
    for x, _ in DataLoader(data(), batch_size=16, shuffle=True):
        fake = made(torch.randn(len(x), 4))
        second.zero_grad()
        logits = torch.cat([judge(x), judge(fake.detach())])
        functional.binary_cross_entropy_with_logits(logits, torch.cat([torch.ones(len(x), 1), torch.zeros(len(x), 1)])).backward()
        second.step()
        first.zero_grad()
        functional.binary_cross_entropy_with_logits(judge(fake), torch.ones(len(x), 1)).backward()
        first.step()
    return [made, judge]


def compiled() -> list[nn.Module]:
    torch._dynamo.reset()
    model = network(nn.Dropout(0.2))
    watched: Any = torch.compile(model, backend="eager")
    train(watched, torch.optim.Adam(model.parameters()), DataLoader(data(), batch_size=16, shuffle=True), epochs=2)
    return [model]


def bfloat16_autocast() -> list[nn.Module]:
    model = network(nn.Dropout(0.2))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in DataLoader(data(), batch_size=16, shuffle=True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    return [model]


def by_hand() -> list[nn.Module]:
    model = network()
    x, y = data()[:]
    for _ in range(30):
        functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad.zero_()
    return [model]


def accumulation_with_scaler() -> list[nn.Module]:
    model = network(nn.Dropout(0.2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for index, (x, y) in enumerate(DataLoader(data(), batch_size=8, shuffle=True)):
        scaler.scale(functional.cross_entropy(model(x), y) / 3).backward()
        if index % 3 == 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return [model]


LOOPS: list[Loop] = [
    dropout,
    shuffling,
    workers,
    adamw_and_schedule,
    clipping,
    lbfgs,
    two_optimisers,
    compiled,
    bfloat16_autocast,
    by_hand,
    accumulation_with_scaler,
]


def outcome(loop: Loop) -> tuple[list[torch.Tensor], torch.Tensor, Any, Any]:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    models = loop()
    weights = [value.clone() for model in models for value in model.state_dict().values()]
    return weights, torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_watched_run_ends_the_same_bit_for_bit(loop: Loop, tmp_path: Path) -> None:
    weights, *states = outcome(loop)
    recorder = arm(tmp_path / "runs", script=loop.__name__)
    try:
        watched, *watched_states = outcome(loop)
    finally:
        recorder.stop(how="returned", status=0)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(watched, weights, strict=True))
    assert torch.equal(watched_states[0], states[0])
    assert watched_states[1:] == states[1:]
    assert recorder.folder is not None
    run = load_run(recorder.folder)
    assert len(run.trainings) == 1
    assert not [note for note in run.notes if "ModuleNotFound" not in note]
