"""What a step holds, predicted from small batches, against the peak that PyTorch's own profiler measures on a large one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from lossdoctor.machine.memory import Growth, follow


class Blocks(nn.Module):
    """Blocks one after the other, each checkpointed where it is asked for."""

    def __init__(self, blocks: list[nn.Module], head: nn.Module, checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = head
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


class Recurrent(nn.Module):
    """A recurrent layer that gives its outputs alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[0]


def perceptron(checkpointed: bool) -> tuple[nn.Module, tuple[int, ...]]:
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(4)]
    return Blocks(list(blocks), nn.Linear(64, 10), checkpointed), (64,)


def convolutional(checkpointed: bool) -> tuple[nn.Module, tuple[int, ...]]:
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(4)]
    return Blocks(list(blocks), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)), checkpointed), (8, 24, 24)


def transformer(checkpointed: bool) -> tuple[nn.Module, tuple[int, ...]]:
    blocks = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(3)]
    return Blocks(list(blocks), nn.Sequential(nn.Flatten(), nn.Linear(16 * 32, 10)), checkpointed), (16, 32)


def recurrent(checkpointed: bool) -> tuple[nn.Module, tuple[int, ...]]:
    return Blocks([Recurrent(32), Recurrent(32)], nn.Sequential(nn.Flatten(), nn.Linear(12 * 32, 10)), checkpointed), (12, 32)


def step_of(model: nn.Module, shape: tuple[int, ...], rows: int) -> Callable[[], None]:
    inputs, targets = torch.randn(rows, *shape), torch.randint(0, 10, (rows,))

    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()

    return step


def profiled_peak(step: Callable[[], None]) -> int:
    """Return the most bytes that the profiler saw allocated at once, beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    live = peak = 0
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("make", [perceptron, convolutional, transformer, recurrent])
def test_the_peak_is_predicted_within_five_per_cent(make: Callable[[bool], tuple[nn.Module, tuple[int, ...]]], checkpointed: bool) -> None:
    torch.manual_seed(0)
    model, shape = make(checkpointed)
    small, middle, large = 16, 32, 256
    one, other = ((rows, follow([model], step_of(model, shape, rows))) for rows in (small, middle))
    model.zero_grad()
    assert Growth.through(one, other).peak(large) == pytest.approx(profiled_peak(step_of(model, shape, large)), rel=0.05)


def test_checkpointing_saves_less_and_shows_in_both_figures() -> None:
    found = {}
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model, shape = perceptron(checkpointed)
        found[checkpointed] = follow([model], step_of(model, shape, 512))
    assert found[True].peak < 0.6 * found[False].peak
    assert sum(found[True].saved.values()) < 0.6 * sum(found[False].saved.values())


def test_what_backward_needs_is_told_by_module() -> None:
    rows = 32
    model = nn.Sequential(nn.Linear(4, 100), nn.Tanh(), nn.Linear(100, 2))
    saved = follow([model], lambda: model(torch.randn(rows, 4)).sum().backward()).saved
    assert saved["0"] == 4 * rows * 4, "the first layer needs its inputs"
    assert saved["1"] == 4 * rows * 100, "tanh its outputs"
    assert saved["2"] == 0, "which are the inputs of the last layer, and count once"


def test_nothing_of_the_following_remains() -> None:
    model = nn.Linear(2, 2)
    follow([model], lambda: model(torch.ones(3, 2)).sum().backward())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
