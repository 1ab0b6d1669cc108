"""What one step is, seen on real loops: the recorded values are those that the loop itself computed."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.utils
from tests.record.loops import batch, network, recorded
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lossdoctor.core.run import Training
from lossdoctor.record import arm


def test_losses_of_a_plain_loop_are_recorded_exactly(tmp_path: Path) -> None:
    def loop() -> list[float]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for seed in range(30):
            x, y = batch(seed=seed)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    run, losses = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("loss").values.tolist() == losses
    assert training.fact("loss_source") == "call"
    assert training.series("batch_rows").values.tolist() == [8.0] * 30
    assert training.series("train_mode").values.tolist() == [1.0] * 30
    assert training.series("lr").values.tolist() == [0.1] * 30
    assert [each["name"] for each in training.facts["parameters"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [each["role"] for each in training.facts["parameters"]] == ["weight", "bias", "weight", "bias"]
    assert training.facts["optimizer"]["name"] == "SGD"
    assert [layer["kind"] for layer in training.facts["model"]["layers"]] == ["Linear", "Tanh", "Linear"]


def test_times_add_up_to_no_more_than_the_wall_clock(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: steps(network(), 40))
    (training,) = run.trainings
    names = ("forward_seconds", "backward_seconds", "step_seconds", "gap_seconds")
    parts = [training.series(name).values[1:] for name in names]
    assert all((part > 0).all() for part in parts)
    walls = training.series("wall").values
    assert sum(part.sum() for part in parts) <= walls[-1] - walls[0]


def steps(model: nn.Module, count: int, reset: Callable[[nn.Module, torch.optim.Optimizer], object] | None = None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for seed in range(count):
        x, y = batch(seed=seed)
        if reset is None:
            optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if reset is not None:
            reset(model, optimizer)


def set_none(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def zero_data(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.data.zero_()


RESETS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], object]] = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(),
    "optimizer in place": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "model": lambda model, optimizer: model.zero_grad(),
    "none by hand": set_none,
    "zero in place": lambda model, optimizer: [parameter.grad.zero_() for parameter in model.parameters() if parameter.grad is not None],
    "zero of data": zero_data,
}


@pytest.mark.parametrize("way", RESETS)
def test_every_way_of_resetting_gradients_is_seen(way: str, tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: steps(network(), 12, RESETS[way]))
    assert run.trainings[0].series("not_reset").values.tolist() == [0.0] * 12


def test_gradients_that_are_never_reset_are_seen(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: steps(network(), 12, lambda model, optimizer: None))
    assert run.trainings[0].series("not_reset").values.tolist() == [0.0] + [1.0] * 11


def test_accumulation_is_one_step_of_several_backwards(tmp_path: Path) -> None:
    def loop() -> list[float]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        values = []
        for step in range(10):
            total = 0.0
            for part in range(4):
                x, y = batch(seed=4 * step + part)
                loss = functional.cross_entropy(model(x), y) / 4
                loss.backward()
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            values.append(total)
        return values

    run, values = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("backwards").values.tolist() == [4.0] * 10
    assert training.series("loss").values == pytest.approx(values)
    assert training.series("not_reset").values.tolist() == [0.0] * 10


def test_a_pair_that_alternates_is_one_training_with_roles(tmp_path: Path) -> None:
    def loop() -> None:
        made, judge = nn.Linear(2, 3), nn.Linear(3, 1)
        first, second = torch.optim.Adam(made.parameters()), torch.optim.Adam(judge.parameters())
        for _ in range(20):
            fake = made(torch.randn(4, 2))
            second.zero_grad()
            judge(fake.detach()).mean().backward()
            second.step()
            first.zero_grad()
            (-judge(fake).mean()).backward()
            first.step()

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert len(training.roles) == 2
    for role in training.roles:
        assert role.series("not_reset").values.tolist() == [0.0] * 20
        assert role.series("backwards").values.tolist() == [1.0] * 20


def test_one_backward_serves_two_optimisers(tmp_path: Path) -> None:
    def loop() -> list[float]:
        model = network()
        first, second = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())
        losses = []
        for seed in range(15):
            x, y = batch(seed=seed)
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            for optimizer in (first, second):
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    run, losses = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert [role.series("loss").values.tolist() for role in training.roles] == [losses, losses]
    assert all(role.table("coverage")[-1]["missed"] == 0 for role in training.roles)


def test_a_forgotten_step_is_a_training_by_hand_with_an_idle_optimiser(tmp_path: Path) -> None:
    def loop() -> None:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters())
        for seed in range(20):
            x, y = batch(seed=seed)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.fact("what") == "manual"
    assert training.fact("optimizers_idle") == [{"name": "AdamW", "zero_grad": True, "held": 4, "shared": 4}]
    assert training.steps == 20
    assert {row["changed"] for row in training.table("coverage")} == {0.0}
    assert training.series("not_reset").values[1:].tolist() == [0.0] * 19


def test_steps_by_hand_move_the_parameters(tmp_path: Path) -> None:
    weights = [torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)]

    def loop() -> None:
        for seed in range(20):
            x, y = batch(seed=seed)
            hidden = torch.relu(x @ weights[0]) @ weights[1]
            (torch.logsumexp(hidden, 1) - hidden[torch.arange(len(y)), y]).mean().backward()
            with torch.no_grad():
                for weight in weights:
                    assert weight.grad is not None
                    weight -= 0.1 * weight.grad
                    weight.grad = None

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert (training.fact("what"), training.fact("loss_source"), training.steps) == ("manual", "backward", 20)
    assert sorted(tuple(each["shape"]) for each in training.facts["parameters"]) == [(3, 4), (4, 2)]
    assert (training.series("update_ratios").values > 0).all()
    assert training.series("grad_norm").values[0] > 0


def test_repeats_and_phases_are_told_apart(tmp_path: Path) -> None:
    def loop() -> None:
        first, second = network(), network()
        steps(first, 8)
        steps(first, 8)
        steps(second, 8)

    run, _ = recorded(tmp_path, loop)
    assert [training.phase_of for training in run.trainings] == [None, 0, None]


def test_closures_are_measured_at_their_end(tmp_path: Path) -> None:
    calls = []

    def loop() -> None:
        model = network()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        x, y = batch(32)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            calls.append(loss.item())
            return loss

        for _ in range(6):
            optimizer.step(closure)  # type: ignore[arg-type]

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.steps == 6
    assert training.series("backwards").values.sum() == len(calls)
    assert training.series("not_reset").values.tolist() == [0.0] * 6
    assert (training.series("grad_norm").values > 0).all()


def test_clipping_scaling_and_schedules_are_seen(tmp_path: Path) -> None:
    def loop() -> tuple[list[float], list[float]]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        norms, losses = [], []
        for seed in range(10):
            x, y = batch(seed=seed)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.25).item())
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            losses.append(loss.item())
        return norms, losses

    run, (norms, losses) = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("clip_norm").values.tolist() == pytest.approx(norms)
    assert set(training.series("clip_limit").values.tolist()) == {0.25}
    assert training.series("backward_value").values.tolist() == losses
    assert training.series("grad_norm").values.max() <= 0.2501
    assert training.series("lr").values.tolist() == [0.4] * 5 + [0.2] * 5
    assert run.facts["schedulers"] == ["StepLR"]


def test_an_optimiser_without_gradients_is_seen(tmp_path: Path) -> None:
    def loop() -> None:
        model, other = network(), network()
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for seed in range(10):
            x, y = batch(seed=seed)
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.zero_grad()

    run, _ = recorded(tmp_path, loop)
    assert run.trainings[0].series("no_gradient").values.tolist() == [1.0] * 10


def test_optimisers_that_step_within_backward_make_the_backward_a_step(tmp_path: Path) -> None:
    def loop() -> None:
        model = network()
        optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

        def step(parameter: torch.Tensor) -> None:
            optimizers[parameter].step()  # type: ignore[index]
            optimizers[parameter].zero_grad()  # type: ignore[index]

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for seed in range(12):
            x, y = batch(seed=seed)
            functional.cross_entropy(model(x), y).backward()

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert (training.steps, training.fact("what"), training.fact("optimizers_idle")) == (12, "manual", [])


def test_places_in_the_source_and_the_loader_are_known(tmp_path: Path) -> None:
    def loop() -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(TensorDataset(*batch(32)), batch_size=4, shuffle=True):
            optimizer.zero_grad()
            output = model(x)
            loss = functional.cross_entropy(output, y)
            loss.backward()
            optimizer.step()

    run, _ = recorded(tmp_path, loop)
    (training,) = run.trainings
    first = inspect.getsourcelines(loop)[1]
    places = {name: line - first for name, (_, line) in training.facts["where"].items()}
    assert places == {"loader": 3, "forward": 5, "loss": 6, "backward": 7, "step": 8}
    assert training.facts["where"]["loss"][0] == __file__
    assert training.facts["loader"] | {"batch_size": 4, "shuffle": True, "workers": 0, "rows": 32} == training.facts["loader"]
    assert (training.series("loader_seconds").values > 0).all()


def test_a_model_that_computes_its_own_loss_and_checkpoints(tmp_path: Path) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = checkpoint(self.body, x, use_reentrant=True)
            output = self.head(hidden)
            return output, functional.cross_entropy(output, y)

    def loop() -> list[float]:
        model = Whole()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for seed in range(12):
            x, y = batch(seed=seed)
            _, loss = model(x.requires_grad_(), y=y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    run, losses = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("call_value").values.tolist() == losses
    assert training.series("backwards").values.tolist() == [1.0] * 12
    assert training.series("batch_rows").values.tolist() == [8.0] * 12


def test_the_recording_ends_after_the_steps_that_were_asked_for(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, lambda: steps(network(), 30), max_steps=10)
    assert run.trainings[0].steps == 10


def test_rare_samples_go_on_in_a_longer_run(tmp_path: Path) -> None:
    torch._dynamo.utils.counters.clear()  # activations are let be in a process that has compiled something
    run, _ = recorded(tmp_path, lambda: steps(network(), 600))
    training: Training = run.trainings[0]
    for name in ("grad_norms", "update_ratios", "displacements", "weight_norms"):
        taken = training.series(name).steps
        assert taken[:20].tolist() == list(range(20))
        assert taken[-1] > 500
        assert len(taken) < 250
    assert training.table("batch")[0]["inputs"][0]["shape"] == [8, 3]
    assert training.table("loss_call")[0]["kind"] == "cross_entropy"
    assert training.table("loss_call")[0]["ratio"] == 1.0
    assert training.table("modes")[0]["sensitive"] == 0
    assert len(training.table("row_hashes")[0]["hashes"]) == 8
    assert training.table("activations")[0]["layers"]
    assert training.table("backward_graph")[0]["leaves"] == 4
    assert training.series("memory").values[0] > 1e6


def slow_collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    time.sleep(0.004)
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


@pytest.mark.parametrize("collate", [slow_collate, None])
def test_a_slow_collate_function_is_told_from_slow_rows_and_put_back(collate: Any, tmp_path: Path) -> None:
    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return 160

        def __getitem__(self, index: int) -> Any:
            if collate is None:
                time.sleep(0.0005)
            return batch(160)[0][index], batch(160)[1][index]

    loader = DataLoader(Rows(), batch_size=8, collate_fn=collate)
    iterators = []

    def loop() -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        iterators.append(iter(loader))
        for x, y in iterators[0]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    run, _ = recorded(tmp_path, loop)
    assert (run.facts["collate_share"] > 0.5) == (collate is not None)
    assert iterators[0]._dataset_fetcher.collate_fn is loader.collate_fn


def test_what_probes_compute_is_no_part_of_the_captured_step(tmp_path: Path) -> None:
    recorder = arm(tmp_path / "runs", script="loop", budget=100.0)
    try:
        steps(network(), 5)
        held = recorder.captures
        assert held is not None
        names = [getattr(each.call, "__name__", each.call) for each in held.batches[0].program.instructions]
    finally:
        recorder.stop()
    assert names == [0, "cross_entropy"]
