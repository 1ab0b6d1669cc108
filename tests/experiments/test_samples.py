"""Which examples a check keeps to be shown: of tables, of images."""

import torch
from torch import nn

from tests.experiments.conftest import train
from tests.experiments.test_answers import answer


def shown(model, inputs, labels):
    return answer(train(model, inputs, labels, steps=5), "look")["samples"]


def test_a_table_is_shown_by_its_values(problem):
    inputs, labels = problem
    found = shown(nn.Linear(inputs.shape[1], 4), inputs, labels)
    assert len(found) == 8
    assert found[0]["row"].count(",") == inputs.shape[1] - 1
    assert found[0]["target"] in {"0", "1", "2", "3"}


def test_images_are_made_small():
    torch.manual_seed(0)
    inputs, labels = torch.rand(200, 3, 32, 48), torch.randint(0, 4, (200,))
    image = shown(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 48, 4)), inputs, labels)[0]["image"]
    assert (image["height"], image["width"], image["channels"]) == (16, 24, 3)
    assert len(image["pixels"]) == 2 * 16 * 24 * 3
