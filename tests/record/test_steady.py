"""The short way through equal steps records what the ordinary handlers record; these are its slow twin."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from tests.record.loops import batch, network
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lossdoctor.core.run import Run, Training
from lossdoctor.core.store import load_run
from lossdoctor.record import arm, capture, schedule, steady
from lossdoctor.record.events import Observer
from lossdoctor.record.steady import Steady

# All that does not depend on a clock.
COLUMNS = ("loss", "backward_value", "lr", "not_reset", "no_gradient", "clip_norm", "clip_limit", "train_mode", "batch_rows", "backwards")
TIMES = ("wall", "forward_seconds", "backward_seconds", "step_seconds", "gap_seconds")
STEPS = 60

Result = TypeVar("Result")


class Loop:
    """Train a small network; `turn` may do something else at one step."""

    def __init__(self, turn: Callable[[Loop, int], bool | None] = lambda loop, step: None) -> None:
        torch.manual_seed(0)
        self.turn = turn
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def __call__(self) -> None:
        for step in range(STEPS):
            if not self.turn(self, step):
                self.step(step)

    def step(self, seed: int, rows: int = 8) -> None:
        x, y = batch(rows, seed=seed)
        loss = functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def backward_alone(loop: Loop, step: int) -> bool | None:
    if step % 20 != 19:
        return None
    x, y = batch(seed=step)
    functional.cross_entropy(loop.model(x), y).backward()
    return True


def forward_alone(loop: Loop, step: int) -> None:
    if step == 30:
        loop.model(batch(seed=1)[0])


def loss_alone(loop: Loop, step: int) -> None:
    if step == 30:
        functional.cross_entropy(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1]))


def step_twice(loop: Loop, step: int) -> None:
    if step == 30:
        loop.optimizer.step()


def validate(loop: Loop, step: int) -> None:
    if step % 15 == 14:
        loop.model.eval()
        with torch.no_grad():
            for seed in range(3):
                x, y = batch(seed=100 + seed)
                functional.cross_entropy(loop.model(x), y)
        loop.model.train()


def validate_with_gradients(loop: Loop, step: int) -> None:
    if step % 15 == 14:
        for seed in range(3):
            x, y = batch(seed=100 + seed)
            functional.cross_entropy(loop.model(x), y)


def never_reset_again(loop: Loop, step: int) -> bool | None:
    if step < 30:
        return None
    x, y = batch(seed=step)
    functional.cross_entropy(loop.model(x), y).backward()
    loop.optimizer.step()
    return True


def gradients_cut_off(loop: Loop, step: int) -> bool | None:
    if step < 30:
        return None
    loop.optimizer.zero_grad()
    x, _ = batch(seed=step)
    (loop.model(x).detach().sum() * torch.ones(1, requires_grad=True)).sum().backward()
    loop.optimizer.step()
    return True


def another_mode(loop: Loop, step: int) -> None:
    if step == 30:
        loop.model.eval()


def forward_fails(loop: Loop, step: int) -> None:
    if step == 30:
        with pytest.raises(RuntimeError):
            loop.model(torch.zeros(2, 99))


def backward_fails(loop: Loop, step: int) -> None:
    if step == 30:
        loss = functional.cross_entropy(loop.model(batch()[0]), batch()[1])
        loss.backward()
        with pytest.raises(RuntimeError):
            loss.backward()


def another_optimizer(loop: Loop, step: int) -> None:
    if step == 30:
        loop.optimizer = torch.optim.Adam(loop.model.parameters())


def another_model(loop: Loop, step: int) -> None:
    if step == 30:
        loop.model = network()
        loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1)


def other_rate(loop: Loop, step: int) -> None:
    loop.optimizer.param_groups[0]["lr"] = 0.05 if step < 30 else 0.01


def rate_is_a_tensor(loop: Loop, step: int) -> None:
    if step == 30:
        loop.optimizer.param_groups[0]["lr"] = torch.tensor(0.01)


def clipped(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)
    loop.optimizer.zero_grad()
    functional.cross_entropy(loop.model(x), y).backward()
    if step > 30:
        nn.utils.clip_grad_norm_(loop.model.parameters(), 0.5)
    loop.optimizer.step()
    return True


def other_rows(loop: Loop, step: int) -> bool:
    loop.step(step, rows=3 + step % 5)
    return True


def hand_written_loss(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)
    loop.optimizer.zero_grad()
    (-loop.model(x).log_softmax(1)[torch.arange(len(y)), y]).mean().backward()
    loop.optimizer.step()
    return True


def accumulated(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)
    (functional.cross_entropy(loop.model(x), y) / 2).backward()
    if step % 2:
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    return True


def zeroed(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)
    loop.optimizer.zero_grad(set_to_none=False)
    functional.cross_entropy(loop.model(x), y).backward()
    loop.optimizer.step()
    return True


def closure(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)

    def again() -> torch.Tensor:
        loop.optimizer.zero_grad()
        loss = functional.cross_entropy(loop.model(x), y)
        loss.backward()
        return loss

    loop.optimizer.step(again if step > 30 else None) if step > 30 else loop.step(step)
    return True


def loss_jumps(loop: Loop, step: int) -> bool:
    x, y = batch(seed=step)
    loop.optimizer.zero_grad()
    (functional.cross_entropy(loop.model(x), y) * (50 if step in (25, 40) else 1)).backward()
    loop.optimizer.step()
    return True


TURNS = [value for value in list(globals().values()) if getattr(value, "__annotations__", {}).get("loop") == "Loop"]


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no probe be due and few steps be captured: those steps go the ordinary way."""
    monkeypatch.setattr(capture, "ROWS", 16)
    monkeypatch.setattr(schedule, "CREDIT_STEPS", 1)


@pytest.mark.parametrize("turn", [lambda loop, step: None, *TURNS], ids=["plain", *(turn.__name__ for turn in TURNS)])
def test_both_ways_record_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: Callable[[Loop, int], bool | None]) -> None:
    monkeypatch.setattr(steady, "_MOST", 7)
    short, _ = recorded(tmp_path / "short", Loop(turn))
    monkeypatch.setattr(steady, "_ALIKE", 10**9)
    ordinary, _ = recorded(tmp_path / "ordinary", Loop(turn))
    assert contents(short) == contents(ordinary)
    assert [sorted(known_times(training)) for training in short.trainings] == [
        sorted(known_times(training)) for training in ordinary.trainings
    ]


def recorded(out: Path, loop: Callable[[], Result]) -> tuple[Run, Result]:
    """Run a loop under the recorder with next to no budget, and read what was written."""
    recorder = arm(out, script="loop", budget=1e-9)
    try:
        result = loop()
    finally:
        recorder.stop(how="returned", status=0)
    assert recorder.folder is not None
    return load_run(recorder.folder), result


def contents(run: Run) -> list[object]:
    """Return what is equal however a run was followed."""
    found: list[object] = [len(run.trainings)]
    for training in run.trainings:
        for name in sorted(training.signals.keys() & set(COLUMNS)):
            series = training.series(name)
            found.append((name, series.steps.tolist(), np.nan_to_num(series.values, nan=-1.0).tolist()))
        found.append([(row["forwards"], row["rows"], row["loss"], row["repeated"]) for row in training.rows.get("validation", ())])
    return found


def known_times(training: Training) -> dict[str, int]:
    return {name: len(training.signals[name].values) for name in TIMES if name in training.signals}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the steps that went the short way."""
    steps: list[int] = []
    ended = Steady._end_steps

    def counted(self: Steady, done: int) -> None:
        steps.append(done)
        ended(self, done)

    monkeypatch.setattr(Steady, "_end_steps", counted)
    return steps


def test_most_steps_of_a_plain_loop_go_the_short_way(tmp_path: Path, taken: list[int]) -> None:
    def loop() -> None:
        for _ in range(10):
            Loop.__call__(again)

    again = Loop()
    recorded(tmp_path, loop)
    assert sum(taken) > 0.6 * 10 * STEPS


def test_a_loop_with_a_loader_and_a_scheduler_goes_the_short_way(tmp_path: Path, taken: list[int]) -> None:
    data = TensorDataset(torch.randn(256, 3), torch.randint(0, 2, (256,)))

    def loop() -> list[float]:
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        losses = []
        for x, y in itertools.chain.from_iterable(DataLoader(data, batch_size=8, shuffle=True) for _ in range(4)):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        return losses

    run, losses = recorded(tmp_path, loop)
    (training,) = run.trainings
    assert training.series("loss").values.tolist() == losses
    assert (training.series("loader_seconds").values > 0).all()
    rates = training.series("lr").values
    assert rates == pytest.approx(1e-3 * 0.99 ** np.arange(len(rates)))
    assert sum(taken) > 32


def test_an_error_of_the_short_way_is_noted_and_the_ordinary_one_goes_on(tmp_path: Path) -> None:
    class Groups(list):  # type: ignore[type-arg]
        steps = 0

        def __getitem__(self, place: object) -> object:
            if sys._getframe(1).f_code.co_name == "take_step":
                raise ValueError("no")
            return super().__getitem__(place)  # type: ignore[call-overload]

    training = Loop()
    training.optimizer.param_groups = Groups(training.optimizer.param_groups)
    run, _ = recorded(tmp_path, training)
    (held,) = run.trainings
    assert len(held.series("loss").values) >= STEPS - 1
    assert any("steady take_step" in note for note in run.notes)


def test_a_warning_within_a_followed_forward_points_at_the_script(tmp_path: Path) -> None:
    class Warns(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("look", stacklevel=4)  # past torch's two frames, as a module's own warning is
            return super().forward(x)

    training = Loop()
    training.model = Warns(*training.model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorded(tmp_path, training)
    places = {Path(each.filename).name for each in caught if str(each.message) == "look"}
    assert places == {Path(__file__).name}


def test_nothing_of_a_model_is_kept_alive(tmp_path: Path) -> None:
    import gc
    import weakref

    def loop() -> weakref.ref[nn.Module]:
        training = Loop()
        training()
        model = weakref.ref(training.model)
        observer = next(each for each in gc.get_objects() if isinstance(each, Observer) and not each.off)
        assert observer.steady.shape
        return model

    _, model = recorded(tmp_path, loop)
    gc.collect()
    assert model() is None
