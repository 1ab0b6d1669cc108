"""The patches change nothing that a script can see, and are gone afterwards."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.data import dataloader

from lossdoctor.record import Recorder, arm
from lossdoctor.record.seams import DROPOUTS, LOSSES

OWNERS: list[Any] = [
    nn.Module,
    torch.autograd,
    functional,
    dataloader._BaseDataLoaderIter,
    nn.utils,
    clip_grad,
    torch.optim.Optimizer,
    torch.amp.GradScaler,
    torch.optim.lr_scheduler.LRScheduler,
    torch.optim.lr_scheduler.ReduceLROnPlateau,
]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = arm(tmp_path / "runs", script="seams")
    yield recorder
    recorder.stop()


def attributes() -> dict[tuple[int, str], Any]:
    return {(place, name): value for place, owner in enumerate(OWNERS) for name, value in vars(owner).items()}


def test_every_patch_is_undone_exactly(tmp_path: Path) -> None:
    before = attributes()
    hooks = dict(_global_optimizer_pre_hooks), dict(_global_optimizer_post_hooks)
    recorder = arm(tmp_path / "runs", script="seams")
    during = attributes()
    assert {name for (_, name), value in during.items() if before[_, name] is not value} >= {"__call__", "backward", "cross_entropy"}
    recorder.stop()
    after = attributes()
    assert before.keys() == after.keys()
    assert all(after[key] is value for key, value in before.items())
    assert (dict(_global_optimizer_pre_hooks), dict(_global_optimizer_post_hooks)) == hooks


def test_a_later_patch_of_somebody_else_stays(tmp_path: Path) -> None:
    recorder = arm(tmp_path / "runs", script="seams")
    covered, original = functional.mse_loss, inspect.unwrap(functional.mse_loss)
    theirs = lambda *args, **kwargs: covered(*args, **kwargs)  # noqa: E731
    functional.mse_loss = theirs
    recorder.stop()
    try:
        assert functional.mse_loss is theirs
        assert functional.mse_loss(torch.ones(2), torch.zeros(2)).item() == 1.0
    finally:
        functional.mse_loss = original


def test_patched_functions_keep_name_and_signature(recorder: Recorder) -> None:
    for name in [*LOSSES, *DROPOUTS, "batch_norm"]:
        if hasattr(functional, name):
            assert getattr(functional, name).__name__ == name
    assert list(inspect.signature(functional.cross_entropy).parameters)[:3] == ["input", "target", "weight"]
    assert pickle.loads(pickle.dumps(functional.cross_entropy)) is functional.cross_entropy


def test_models_look_the_same_to_copy_and_pickle(recorder: Recorder, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    plain = set(vars(model)), len(model._forward_hooks)
    model(torch.ones(1, 2)).sum().backward()
    assert (set(vars(model)), len(model._forward_hooks)) == plain
    assert torch.equal(copy.deepcopy(model)(torch.ones(1, 2)), pickle.loads(pickle.dumps(model))(torch.ones(1, 2)))


def test_a_warning_points_at_the_scripts_line(recorder: Recorder) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        functional.mse_loss(torch.ones(2, 1), torch.ones(2))
    assert [entry.filename for entry in seen] == [__file__]


def test_compiled_models_have_as_many_graphs(tmp_path: Path) -> None:
    watched, plain = graphs(tmp_path), graphs(None)
    assert watched == plain == [1, 1, 1]


def graphs(out: Path | None) -> list[int]:
    recorder = arm(out, script="seams") if out is not None else None
    counts = []
    try:
        for way in ("module", "method", "step"):
            torch._dynamo.reset()
            counts.append(count_graphs(way))
    finally:
        if recorder is not None:
            recorder.stop()
    return counts


def count_graphs(way: str) -> int:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    model: Any = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "module":
        model = torch.compile(model, backend=backend)
    elif way == "method":
        model.compile(backend=backend)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x), y)

    if way == "step":
        loss_of = torch.compile(loss_of, backend=backend)
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(torch.randn(6, 4), torch.randint(0, 2, (6,))).backward()
        optimizer.step()
    return len(graphs)


class Stack(nn.Module):
    """Be compiled: dynamo passes over torch's own containers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


class Net(nn.Module):
    """Call what is patched, nested."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional.dropout(self.norm(self.layer(x)), 0.0), y)


@pytest.mark.filterwarnings("ignore")
def test_fx_jit_and_export_still_work(recorder: Recorder) -> None:
    model, x, y = Net(), torch.randn(5, 4), torch.randint(0, 3, (5,))
    expected = model(x, y)
    torch.testing.assert_close(torch.fx.symbolic_trace(Net()).graph.find_nodes(op="call_module") != [], True)
    torch.testing.assert_close(torch.jit.trace(model, (x, y))(x, y), expected)
    torch.testing.assert_close(torch.jit.script(model)(x, y), expected)
    torch.testing.assert_close(torch.export.export(model, (x, y)).module()(x, y), expected)


def test_functional_transforms_still_work(recorder: Recorder) -> None:
    model = nn.Linear(3, 2)
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(torch.func.functional_call(model, parameters, (x[None],)), y[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    assert gradients["weight"].shape == (4, 2, 3)
