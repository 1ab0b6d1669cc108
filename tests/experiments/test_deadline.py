"""Experiments get as much done on a busy machine as on an idle one, and ask what is true of the rows and not of their repetition."""

import time

import pytest
import torch
from torch import nn

from lossdoctor.experiments import rate, unseen, widen
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, WorkClock
from tests.experiments.conftest import network, train


def test_time_without_work_counts_by_its_share():
    clock = WorkClock(4.0)
    began, wall = clock(), time.monotonic()
    time.sleep(0.4)
    assert clock() - began == pytest.approx((time.monotonic() - wall) / 4, abs=0.02)


def test_work_counts_as_the_processor_time_that_it_takes():
    clock = WorkClock(1000.0)
    began, cpu = clock(), time.thread_time()
    while time.thread_time() - cpu < 0.2:
        clock()
    assert clock() - began == pytest.approx(time.thread_time() - cpu, abs=0.02)


def test_a_deadline_within_another_is_never_later():
    deadline = Deadline.after(10.0)
    assert deadline.within(100.0).at == deadline.at
    assert deadline.within(1.0).left <= 1.0
    assert deadline.half.left <= 5.0


def test_a_few_rows_seen_often_tell_nothing_of_label_noise(problem):
    inputs, labels = problem
    few, many = (Replay(train(network(), inputs[:rows], labels[:rows], rows=128)) for rows in (40, 2000))
    asked = {"optimizer": "Adam", "settings": {"lr": 1e-3}}
    assert unseen.measure(few, Deadline.after(60), asked)["noise"] == {}
    found = unseen.measure(many, Deadline.after(60), asked)
    struck = [row for batch in many.batches for row in batch.program.constants[0][unseen.split(batch)[1]]]
    assert found["noise"]["rows"] == len(torch.stack(struck).unique(dim=0)) < found["unseen_rows"]


def test_a_model_with_a_frozen_part_is_not_widened(problem):
    model = network()
    model[0].requires_grad_(False)
    with pytest.raises(ReplayRefused, match="frozen"):
        widen.measure(Replay(train(model, *problem)), Deadline.after(30), {})


def test_a_rate_that_throws_the_start_off_is_followed_by_a_lower_one():
    torch.manual_seed(0)
    inputs = torch.randn(1000, 10)
    targets = (inputs[:, :3] ** 2).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    held = train(model, inputs, targets, nn.functional.mse_loss, rate=1e-6, optimizer=torch.optim.SGD)
    asked = {"optimizer": "SGD", "settings": {"lr": 1e-6, "momentum": 0.9}}
    found = rate.measure(Replay(held), Deadline.after(60), asked)
    assert found["other_end"] < 0.5 * found["own_end"]
