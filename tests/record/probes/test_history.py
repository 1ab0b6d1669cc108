"""Graphs that outlive their step are seen, none is kept alive by looking, and the names that hold them are found."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.loops import batch, network, recorded
from torch import nn

from lossdoctor.core.run import Run, Training
from lossdoctor.faults.lop import hidden_state_not_detached
from lossdoctor.faults.mem import graph_retained
from lossdoctor.record.probes.history import SETTLED, History, walk
from lossdoctor.record.probes.keepers import keepers


def loss_of(model: nn.Module) -> torch.Tensor:
    x, y = batch()
    return nn.functional.cross_entropy(model(x), y)


def test_a_mark_lives_as_long_as_the_graph_and_no_longer() -> None:
    history, model = History(), network()
    loss = loss_of(model)
    history.mark(loss, 0)
    assert history.describe(loss_of(model), SETTLED)["kept"] == 1
    del loss
    assert history.describe(loss_of(model), SETTLED) == {"nodes": 11, "reach": 0, "kept": 0, "marked": 1, "kept_validation": 0}


def test_a_sum_of_losses_keeps_their_graphs_and_a_sum_of_numbers_does_not() -> None:
    for number in (False, True):
        history, model, total = History(), network(), torch.zeros(())
        for tick in range(10):
            loss = loss_of(model)
            found = history.describe(loss, tick)
            history.began(loss, tick)
            loss.backward()
            total = total + (loss.item() if number else loss)
        assert (found["kept"], found["marked"]) == (0 if number else 7, 7)


def test_marks_are_bounded_however_many_graphs_are_kept() -> None:
    history, model = History(), network()
    kept = []
    for tick in range(500):
        kept.append(loss_of(model))
        history.mark(kept[-1], tick)
    found = history.describe(kept[-1], 500)
    assert 16 <= found["kept"] == found["marked"] <= 64


def test_reach_is_the_number_of_backward_calls_that_a_graph_spans() -> None:
    history, model, state = History(), nn.RNNCell(3, 3), torch.zeros(2, 3)
    reaches, nodes = [], []
    for tick in range(6):
        state = model(torch.ones(2, 3), state)
        loss = state.sum()
        found = history.describe(loss, tick)
        reaches.append(found["reach"])
        nodes.append(found["nodes"])
        history.began(loss, tick)
        loss.backward(retain_graph=True)
    assert reaches == [0, 1, 2, 3, 4, 5]
    assert nodes == sorted(set(nodes))


def test_what_a_step_began_with_is_walked_to_first() -> None:
    weight = torch.ones(2, requires_grad=True)
    old = weight * 2
    step, side = old * 1, weight
    for _ in range(2000):
        step = step + 1
    for _ in range(2000):
        side = side + 1
    number, nodes = walk((step + side).sum().grad_fn, most=2100)
    assert number == old.grad_fn._sequence_nr()
    assert nodes == 2100


class Holder:
    """Keep what a logger keeps."""

    def __init__(self) -> None:
        self.history: list[torch.Tensor] = []

    def run(self, model: nn.Module, before: int) -> list[dict[str, Any]]:
        for _ in range(3):
            self.history.append(loss_of(model))
        return keepers(before)


def test_names_that_hold_old_graphs_are_found_with_their_lines() -> None:
    model = network()
    total: Any = 0
    for _ in range(3):
        total = total + loss_of(model)
    fresh = loss_of(model)
    names = keepers(total.grad_fn._sequence_nr())
    assert [each["name"] for each in names] == ["total"]
    line = Path(names[0]["file"]).read_text().splitlines()[names[0]["line"] - 1]
    assert "total = total + loss_of(model)" in line
    assert fresh.requires_grad
    assert "self.history" in [each["name"] for each in Holder().run(model, 2**62)]


def test_looking_for_names_keeps_nothing_alive() -> None:
    model = network()

    def step() -> weakref.ref[torch.Tensor]:
        output = loss_of(model)
        keepers(2**62)
        gone = weakref.ref(output)
        output = loss_of(model)
        gc.collect()
        assert gone() is None, "a copy of the frame's names held what the function let go"
        return weakref.ref(output)

    assert step()() is None


def test_more_than_before_is_told_once() -> None:
    history, model = History(), network()
    kept, told = [], []
    for tick in range(40):
        kept.append(loss_of(model))
        told.append(history.grown(tick))
        history.mark(kept[-1], tick)
    counts = [each["kept"] for each in told if each]
    assert counts == [8, 12, 18, 27]


class Logger:
    """Keep tensors in lists by name, and add to them in another method than the one that trains."""

    def __init__(self) -> None:
        self.values: dict[str, list[torch.Tensor]] = {"loss": []}

    def log(self, value: torch.Tensor) -> None:
        self.values["loss"].append(value)

    def run(self, model: nn.Module) -> list[dict[str, Any]]:
        for _ in range(3):
            self.log(loss_of(model))
        return keepers(2**62)


def test_lists_by_name_that_another_method_adds_to_are_found() -> None:
    found = [each for each in Logger().run(network()) if each["name"] == "self.values"]
    assert len(found) == 1
    line = Path(found[0]["file"]).read_text().splitlines()[found[0]["line"] - 1]
    assert 'self.values["loss"].append(value)' in line


def train(leak: str, steps: int = 14) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total: Any = 0.0
    outputs: list[Any] = []
    for _ in range(steps):
        output = model(batch()[0])
        loss = nn.functional.cross_entropy(output, batch()[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + (loss if leak == "loss" else loss.item())
        outputs.append(output if leak == "outputs" else output.detach())
        if leak == "queue":
            outputs = [output, *outputs[:1]]
        if leak == "validation":
            model.eval()
            total = total + nn.functional.cross_entropy(model(batch(seed=1)[0]), batch(seed=1)[1])
            model.train()


@pytest.mark.parametrize(("leak", "present"), [("", False), ("queue", False), ("loss", True), ("outputs", True), ("validation", True)])
def test_a_watched_loop_that_keeps_graphs_is_named_and_one_that_does_not_is_left_alone(leak: str, present: bool, tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: train(leak))
    found = graph_retained.detect(run.trainings[0])
    assert (found is not None and found.strength >= 0.8) == present
    if leak == "validation":
        assert max(row["kept_validation"] for row in run.trainings[0].table("backward_graph")) > 3


def carry(detach: bool, retain: bool, steps: int = 10) -> None:
    model, state = nn.GRU(3, 4, batch_first=True), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(steps):
        output, state = model(torch.randn(2, 5, 3), state)
        if detach:
            state = state.detach()
        optimizer.zero_grad()
        try:
            output.pow(2).mean().backward(retain_graph=retain)
        except RuntimeError:  # as a script ends that does not catch it
            return
        if not retain:
            optimizer.step()
    optimizer.step()


def watched(tmp_path: Path, detach: bool, retain: bool) -> Training:
    run, _ = recorded(tmp_path, lambda: carry(detach, retain))
    assert isinstance(run, Run)
    return run.trainings[0]


def test_a_state_that_is_carried_with_its_graph_is_named(tmp_path: Path) -> None:
    found = hidden_state_not_detached.detect(watched(tmp_path, detach=False, retain=True))
    assert found is not None
    assert found.strength >= 0.8
    assert "`state`" in found.fix


def test_a_backward_that_raises_on_the_graph_of_the_step_before_is_named(tmp_path: Path) -> None:
    found = hidden_state_not_detached.detect(watched(tmp_path, detach=False, retain=False))
    assert found is not None
    assert found.strength >= 0.8


def test_a_detached_state_is_left_alone(tmp_path: Path) -> None:
    assert hidden_state_not_detached.detect(watched(tmp_path, detach=True, retain=False)) is None
