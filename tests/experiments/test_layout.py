"""Layers in places that hurt, on networks whose answer is known."""

import pytest
import torch
from torch import nn

from tests.experiments.conftest import train
from tests.experiments.test_answers import answer
from tests.experiments.test_structure import present


@pytest.fixture
def pictures():
    torch.manual_seed(0)
    labels = torch.randint(0, 4, (600,))
    inputs = torch.randn(600, 1, 16, 16)
    inputs += torch.kron(torch.eye(4).reshape(4, 1, 2, 2)[labels], torch.ones(8, 8))
    return inputs, labels


def network(*first, width):
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(width, 4))


SOUND = {
    "pooling": lambda: network(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), width=512),
    "odd edges": lambda: network(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(3), width=8 * 16),
    "strides": lambda: network(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), width=128),
    "dropout behind": lambda: network(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), width=512),
}
SICK = {
    "a stride beyond its filter": lambda: network(nn.Conv2d(1, 8, 2, 4), nn.ReLU(), width=128),
    "filters on padding": lambda: network(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), width=32
    ),
    "dropout in front": lambda: nn.Sequential(
        nn.Flatten(), nn.Dropout(0.8), nn.Linear(256, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)
    ),
}


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_order_is_left_in_peace(kind, pictures):
    assert present("layout", train(SOUND[kind](), *pictures, steps=60)) == set()


@pytest.mark.parametrize("kind", SICK)
def test_a_layer_in_the_wrong_place_is_advice(kind, pictures):
    assert present("layout", train(SICK[kind](), *pictures, steps=150, rate=3e-3)) == {"layer-order-wrong"}


def test_a_bias_before_a_norm_is_told_and_no_fault(pictures):
    facts = answer(train(SOUND["pooling"](), *pictures, steps=4), "layout")
    assert facts["before_norm"] == ["0"]
    assert facts["unseen"] == []


def test_shortcuts_with_strides_see_everything_together(pictures):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.short = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(1, 8, 1, 2)

        def forward(self, x):
            return torch.relu(self.wide(x) + self.short(x))

    assert answer(train(network(Block(), width=512), *pictures, steps=3), "layout")["unseen"] == []
