"""Is a machine that computes wrongly told from rounding, on layers whose answer is known?"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.experiments.conftest import network, train
from tests.experiments.test_answers import answer
from tests.experiments.test_structure import present


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(1, 16, num_layers=2, batch_first=True, dropout=0.2)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.norm(self.body(x.unsqueeze(2))[0][:, -1]))


def images(inputs):
    return inputs.reshape(-1, 1, 2, 4)


MODELS = {
    "dense": lambda: network(dropout=0.3),
    "norms": lambda: nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 4),
    ),
    "recurrent": Series,
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_sound_machine_is_left_in_peace(kind, problem):
    held = train(MODELS[kind](), *problem, steps=3)
    facts = answer(held, "backend")
    assert len(facts["layers"]) >= 3
    assert facts["step"] == 0.0
    assert all(each["error"] < 100 * each["sound"] + 1e-6 for each in facts["layers"])
    assert present("backend", held) == set()


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_ill_conditioned_inputs_are_rounding(offset, problem):
    inputs, labels = problem
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4))
    assert present("backend", train(model, inputs + offset, labels, steps=3)) == set()


def wrong(value):
    return value * (1 + 0.03 * (torch.arange(value.shape[-1]) % 7 == 3))


def unsteady(value):
    return value + 0.05 * value.abs().mean() * torch.from_numpy(__import__("numpy").random.default_rng().normal(size=value.shape)).to(value)


@pytest.mark.parametrize("error", [wrong, unsteady])
def test_a_kernel_in_error_is_named(error, problem, monkeypatch):
    sound = functional.linear

    def linear(inputs, weight, bias=None):
        result = sound(inputs, weight, bias)
        return error(result) if inputs.dtype == torch.float32 else result

    monkeypatch.setattr(functional, "linear", linear)
    assert present("backend", train(network(), *problem, steps=3)) == {"hardware-or-backend-error"}


def test_weights_and_random_state_stay(problem):
    model = network(dropout=0.5)
    held = train(model, *problem, steps=3)
    before = [each.clone() for each in model.parameters()], torch.get_rng_state()
    one, other = answer(held, "backend"), answer(held, "backend")
    assert one == other
    assert torch.equal(before[1], torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.parameters(), strict=True))
