"""Each treatment, in a tiny loop: it moves what it should, leaves all else alone, and is undone."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch
from torch import nn
from treated import treated

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments import apply_one, names


def problem(seed: int = 0) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small regression with a network that can learn it."""
    torch.manual_seed(seed)
    inputs = torch.randn(64, 4)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), inputs, inputs.sum(1, keepdim=True)


def train(steps: int = 60, rate: float = 0.1, clear: bool = True, step: bool = True, seed: int = 0) -> list[float]:
    """Train on the problem and return the losses."""
    model, inputs, targets = problem(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if step:
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", sorted(names()))
def test_every_treatment_is_described_and_can_be_applied(name: str) -> None:
    module = importlib.import_module(f"lossdoctor.trials.treatments.{name}")
    assert module.__doc__
    assert module.apply.__doc__
    assert next(iter(inspect.signature(module.apply).parameters)) == "hooks"


def test_an_unknown_treatment_is_an_error() -> None:
    with pytest.raises(KeyError):
        apply_one(Hooks(), "prayer", {})


def test_clear_gradients_cures_gradients_that_pile_up() -> None:
    broken, mended = train(clear=False), train()
    with treated("clear_gradients") as hooks:
        assert train(clear=False) == mended
    assert hooks.acted == {"clear_gradients"}
    assert broken[-1] > 10 * mended[-1]
    assert train(clear=False) == broken


def test_scale_rate_is_the_other_rate() -> None:
    with treated("scale_rate", factor=0.1):
        slower = train(rate=0.1)
    assert slower == pytest.approx(train(rate=0.01), rel=1e-4)


def test_clip_bounds_the_step() -> None:
    with treated("clip", norm=1e-3) as hooks:
        losses = train(steps=5)
    assert hooks.acted == {"clip"}
    assert losses[-1] == pytest.approx(losses[0], rel=0.01)


def test_clip_above_every_norm_finds_nothing_to_change() -> None:
    untreated = train(steps=5)
    with treated("clip", norm=1e6) as hooks:
        assert train(steps=5) == untreated
    assert not hooks.acted


def test_shift_seeds_moves_every_seed_of_torch_alike() -> None:
    with treated("shift_seeds", number=3):
        shifted = train(seed=4)
    assert shifted == train(seed=7)
