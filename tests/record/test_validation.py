"""Validation passes: what they are, which figures they show, where outputs meet their targets."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.loops import batch, network, recorded
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

from lossdoctor.core.run import Row

HELD_OUT = batch(40, seed=99)


def train(model: nn.Module, evaluate: Callable[[nn.Module], object], epochs: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        model.train()
        for part in range(6):
            x, y = batch(16, seed=part)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        evaluate(model)


def passes(tmp_path: Path, evaluate: Callable[[nn.Module], object], model: nn.Module | None = None) -> list[Row]:
    run, _ = recorded(tmp_path, lambda: train(network() if model is None else model, evaluate))
    assert len(run.trainings) == 1
    return run.trainings[0].rows.get("validation", [])


def quiet(body: Callable[[nn.Module], Any]) -> Callable[[nn.Module], Any]:
    def evaluate(model: nn.Module) -> Any:
        model.eval()
        with torch.no_grad():
            return body(model)

    return evaluate


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


def test_a_plain_pass(tmp_path: Path) -> None:
    seen: list[float] = []

    def evaluate(model: nn.Module) -> None:
        model.eval()
        seen.append(accuracy(model, *HELD_OUT))

    rows = passes(tmp_path, evaluate)
    assert [row["correct"] for row in rows] == pytest.approx(seen)
    assert [row.step for row in rows] == [6, 12, 18]
    first = rows[0]
    assert (first["rows"], first["forwards"], first["grad_enabled"], first["root_training"]) == (40, 1, False, False)
    assert (first["loss"], first["r2"], first["seen"], first["repeated"]) == (None, None, 0.0, 0.0)
    assert len(first["hashes"]) == 40
    assert first["input"][0]["shape"] == [40, 3]
    assert first["paired_rows"] == 40


def max_and_sum(model: nn.Module) -> int:
    _, best = torch.max(model(HELD_OUT[0]).softmax(1), dim=1)
    return int(best.eq(HELD_OUT[1]).sum().item())


def not_equal(model: nn.Module) -> float:
    return 1 - (torch.argmax(model(HELD_OUT[0]), dim=1) != HELD_OUT[1]).float().mean().item()


def joined_after_the_loop(model: nn.Module) -> float:
    loader = DataLoader(TensorDataset(*HELD_OUT), batch_size=16)
    outputs = [model(x) for x, _ in loader]
    return (torch.cat(outputs).argmax(1) == HELD_OUT[1]).float().mean().item()


def threshold(model: nn.Module) -> float:
    output = model(HELD_OUT[0])
    return (((output[:, 1] - output[:, 0]).sigmoid() > 0.5).long() == HELD_OUT[1]).float().mean().item()


def batches(model: nn.Module) -> float:
    hits = 0
    for start in range(0, 40, 8):
        hits += (model(HELD_OUT[0][start : start + 8]).argmax(1) == HELD_OUT[1][start : start + 8]).sum().item()
    return hits / 40


def loss_alone(model: nn.Module) -> float:
    return functional.cross_entropy(model(HELD_OUT[0]), HELD_OUT[1]).item()


@pytest.mark.parametrize(
    "body", [max_and_sum, not_equal, joined_after_the_loop, threshold, batches, loss_alone], ids=lambda each: each.__name__
)
def test_outputs_meet_targets_in_many_ways(body: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    truth: list[float] = []

    def evaluate(model: nn.Module) -> None:
        quiet(body)(model)
        layers = [module for module in model]  # type: ignore[attr-defined]  # noqa: C416  (not the model itself: it is watched)
        hidden = torch.tanh(functional.linear(HELD_OUT[0], layers[0].weight, layers[0].bias))
        output = functional.linear(hidden, layers[2].weight, layers[2].bias)
        truth.append((output.argmax(1) == HELD_OUT[1]).double().mean().item())

    rows = passes(tmp_path, evaluate)
    assert [row["correct"] for row in rows] == pytest.approx(truth)
    assert all(row["rows"] == 40 for row in rows)


def test_the_loss_of_a_pass_is_the_mean_over_its_rows(tmp_path: Path) -> None:
    expected = []

    def body(model: nn.Module) -> None:
        values = [functional.cross_entropy(model(HELD_OUT[0][part]), HELD_OUT[1][part]) for part in (slice(0, 30), slice(30, 40))]
        expected.append((30 * values[0].item() + 10 * values[1].item()) / 40)

    rows = passes(tmp_path, quiet(body))
    assert [row["loss"] for row in rows] == pytest.approx(expected)
    assert {row["loss_kind"] for row in rows} == {"cross_entropy"}


def test_tokens_with_padding_count_where_the_mask_is(tmp_path: Path) -> None:
    x = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(3))
    y = torch.randint(0, 2, (6, 5), generator=torch.Generator().manual_seed(4))
    mask = torch.arange(5) < torch.tensor([[5], [3], [2], [5], [1], [4]])
    expected: list[float] = []

    def body(model: nn.Module) -> None:
        hits = model(x).argmax(-1) == y
        expected.append((hits & mask).sum().item() / mask.sum().item())

    rows = passes(tmp_path, quiet(body))
    assert [row["correct"] for row in rows] == pytest.approx(expected)
    assert {row["paired_rows"] for row in rows} == {20}


def test_a_regression_shows_its_r2(tmp_path: Path) -> None:
    x, y = HELD_OUT[0], HELD_OUT[0].sum(1, keepdim=True)
    expected = []

    def loop() -> None:
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(4):
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            with torch.no_grad():
                errors = (model(x) - y).pow(2).mean().item()
            expected.append(1 - errors / y.var(correction=0).item())

    run, _ = recorded(tmp_path, loop)
    rows = run.trainings[0].table("validation")
    assert [row["r2"] for row in rows] == pytest.approx(expected, rel=1e-4)
    assert all(row["correct"] is None for row in rows)


def test_looks_at_training_and_at_other_data_are_two_passes(tmp_path: Path) -> None:
    def body(model: nn.Module) -> None:
        for part in range(3):
            accuracy(model, *batch(16, seed=part))
        accuracy(model, *HELD_OUT)

    rows = passes(tmp_path, quiet(body))
    assert [(row["seen"], row["rows"]) for row in rows] == [(1.0, 48), (0.0, 40)] * 3


def test_loaders_that_follow_one_another_are_passes_of_their_own(tmp_path: Path) -> None:
    def body(model: nn.Module) -> None:
        for seed in (91, 92):
            for x, y in DataLoader(TensorDataset(*batch(20, seed=seed)), batch_size=10):
                accuracy(model, x, y)

    assert [row["rows"] for row in passes(tmp_path, quiet(body))] == [20] * 6


def test_modes_and_chance_are_seen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 2))

    def evaluate(model: nn.Module) -> None:
        for _ in range(2):
            accuracy(model, *HELD_OUT)

    rows = passes(tmp_path, evaluate, model)
    assert all(row["random"] and row["root_training"] and row["sensitive"] == row["sensitive_in_train"] == 1 for row in rows)
    assert [row["repeated"] for row in rows] == [0.5] * 3


class DropsAlways(nn.Module):
    """Draw dropout whatever the mode is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(functional.dropout(x, 0.5))


def test_dropout_without_a_training_flag_is_seen_in_eval_mode(tmp_path: Path) -> None:
    rows = passes(tmp_path, quiet(lambda model: accuracy(model, *HELD_OUT)), DropsAlways())
    assert [(row["random"], row["root_training"]) for row in rows] == [(True, False)] * 3


def test_a_pass_with_gradients_on_in_eval_mode(tmp_path: Path) -> None:
    def evaluate(model: nn.Module) -> None:
        model.eval()
        functional.cross_entropy(model(HELD_OUT[0]), HELD_OUT[1]).item()

    rows = passes(tmp_path, evaluate)
    assert [(row["grad_enabled"], row["rows"], row["loss"] is not None) for row in rows] == [(True, 40, True)] * 3


def test_a_pass_with_gradients_on_in_train_mode(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: train(network(), lambda model: [model(HELD_OUT[0]) for _ in range(3)], epochs=4))
    (training,) = run.trainings
    assert [row["rows"] for row in training.table("validation")] == [120] * 3  # no step follows the last one
    assert training.series("batch_rows").values.tolist() == [16.0] * 24


def test_training_that_stays_in_eval_mode_is_training(tmp_path: Path) -> None:
    def loop() -> list[float]:
        model, losses = network(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(30):
            x, y = batch(16, seed=step)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 10 == 9:
                quiet(lambda model: accuracy(model, *HELD_OUT))(model)
        return losses

    run, losses = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("loss").values.tolist() == losses
    assert training.series("train_mode").values.tolist() == [1.0] * 10 + [0.0] * 20
    assert [row.step for row in training.table("validation")] == [10, 20, 30]


def test_a_copy_of_the_model_and_a_look_before_training_belong_to_it(tmp_path: Path) -> None:
    def loop() -> None:
        model = network()
        quiet(lambda model: accuracy(model, *HELD_OUT))(model)
        train(model, lambda model: None)
        quiet(lambda model: accuracy(model, *HELD_OUT))(copy.deepcopy(model))

    run, _ = recorded(tmp_path, loop)
    assert [row.step for row in run.trainings[0].table("validation")] == [0, 18]


def test_a_model_that_nobody_trains_shows_no_pass(tmp_path: Path) -> None:
    teacher = nn.Linear(3, 4)
    rows = passes(tmp_path, quiet(lambda model: teacher(HELD_OUT[0])))
    assert rows == []


def test_modes_of_the_script_are_not_disturbed(tmp_path: Path) -> None:
    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return function(*args, **(kwargs or {}))

    counts = []

    def body(model: nn.Module) -> None:
        with Counting() as outer:
            output = model(HELD_OUT[0])
            with Counting() as inner:
                output.exp()
            output.exp()
        counts.append((inner.count, outer.count > inner.count))
        output = model(HELD_OUT[0])
        with Counting() as after:
            output.exp()
        output.exp()
        counts.append((after.count, True))

    passes(tmp_path, quiet(body))
    assert counts == [(1, True)] * 6
    assert torch._C._len_torch_function_stack() == 0
