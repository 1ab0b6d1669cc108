"""Recurrent networks that forget, that explode, and sound ones."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.core.fault import faults
from lossdoctor.core.run import Experiment, Row, Series, Training
from tests.experiments.conftest import train
from tests.experiments.test_answers import answer

LENGTH = 40


@pytest.fixture
def first_tells():
    """Sequences whose class stands in their first steps: inputs (800, 40, 4) and labels."""
    torch.manual_seed(0)
    labels = torch.randint(0, 4, (800,))
    inputs = 0.3 * torch.randn(800, LENGTH, 4)
    inputs[:, :4] += 2.0 * functional.one_hot(labels, 4)[:, None]
    return inputs, labels


class Network(nn.Module):
    def __init__(self, kind=nn.GRU, scale=None):
        super().__init__()
        self.body = kind(4, 24, batch_first=True)
        self.head = nn.Linear(24, 4)
        if scale is not None:
            with torch.no_grad():
                self.body.weight_hh_l0.mul_(scale)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.Linear(28, 24), nn.Linear(24, 4)

    def forward(self, x):
        state = x.new_zeros(len(x), 24)
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(torch.cat([x[:, step], state], 1)))
        return self.head(state)


def judge(held, end):
    """Ask the rule with a loss that ended somewhere."""
    facts = answer(held, "through_time")
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 1.386, "zero_loss": 1.386})
    loss = Series.of([1.386 + (end - 1.386) * step / 59 for step in range(60)])
    training = Training(
        signals={"loss": loss}, rows={"loss_call": [call]}, experiments={"through_time": Experiment("through_time", "done", 1.0, facts)}
    )
    found = faults()["bptt-unstable"].detect(training)
    return facts, found.strength if found else 0.0


def test_weights_that_fade_are_named(first_tells):
    torch.manual_seed(1)
    held = train(Network(nn.RNN, scale=0.3), *first_tells, steps=60, rate=3e-3)
    facts, strength = judge(held, 1.386)
    assert facts["ratio"] < 1e-6
    assert facts["kept"] < facts["own"] - 0.3
    assert strength >= 0.8


def test_a_gated_network_that_learns_is_left_in_peace(first_tells):
    inputs, labels = first_tells
    facts, strength = judge(train(Network(nn.LSTM), inputs.flip(1), labels, steps=60, rate=1e-2), 0.1)
    assert facts["ratio"] < 1e-3
    assert strength == 0.0


@pytest.mark.parametrize("end", [1.386])
def test_labels_without_meaning_are_not_blamed_on_time(first_tells, end):
    inputs, labels = first_tells
    _, strength = judge(train(Network(nn.LSTM), inputs, labels[torch.randperm(800)], steps=60, rate=3e-3), end)
    assert strength < 0.3


def test_a_cell_written_by_hand_is_measured(first_tells):
    facts = answer(train(ByHand(), *first_tells, steps=3), "through_time")
    assert facts["steps"] == LENGTH
    assert facts["ratio"] < 1e-3


def test_the_ratio_is_that_of_the_slow_obvious_way(first_tells):
    model = Network(nn.RNN)
    held = train(model, *first_tells, steps=1)
    torch.manual_seed(0)
    fresh = Network(nn.RNN)
    fresh.load_state_dict(held.initial[0])
    given = held.batches[0].program.constants[0].clone().requires_grad_()
    last = fresh.body(given)[0][:, -1]
    total = torch.zeros(LENGTH, dtype=torch.float64)
    draw = torch.randn(last.shape, generator=torch.Generator().manual_seed(0))
    slope = torch.autograd.grad((last * draw).sum(), given)[0].double()
    for step in range(LENGTH):
        total[step] = slope[:, step].norm()
    assert answer(held, "through_time")["ratio"] == pytest.approx(float(total[0] / total[-1]), rel=1e-3)


def test_a_dense_network_has_no_time(problem):
    from lossdoctor.experiments.workup import Workup
    from tests.experiments.conftest import network

    found = Workup(train(network(), *problem, steps=2)).answer({"experiment": "through_time", "seconds": 5, "parameters": {}})
    assert found["status"] == "unknown"
    assert "step of time" in found["facts"]["reason"]
