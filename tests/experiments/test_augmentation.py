"""Augmentation that keeps the answer, and that destroys it; what can be told apart, and what not."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from lossdoctor.core.fault import faults
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.experiments.told_apart import told_apart
from tests.experiments.conftest import train
from tests.experiments.test_answers import answer

INPUTS, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
INPUTS = (INPUTS.float() / 16).reshape(-1, 1, 8, 8)


def shift(image):
    return torch.roll(image, tuple(torch.randint(-1, 2, (2,)).tolist()), (1, 2))


def faint(image):
    return shift(image) + 0.1 * torch.randn_like(image)


def drown(image):
    return image + 8 * torch.randn_like(image)


def erase(image):
    kept = torch.zeros_like(image)
    row, column = torch.randint(0, 7, (2,)).tolist()
    kept[:, row : row + 2, column : column + 2] = image[:, row : row + 2, column : column + 2]
    return kept


class Digits(torch.utils.data.Dataset):
    def __init__(self, change=None, labels=LABELS, inputs=INPUTS):
        self.change, self.labels, self.inputs = change, labels, inputs

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, place):
        image = self.inputs[place]
        return (image if self.change is None else self.change(image)), self.labels[place]


class Hidden(Digits):
    """Augment without a part that could be switched off."""

    def __getitem__(self, place):
        return drown(self.inputs[place]), self.labels[place]


def held(dataset, change=lambda batch: batch, *, validated=True, loader=True):
    rows = torch.randperm(len(dataset))[:640].tolist()
    images = change(torch.stack([dataset[place][0] for place in rows]))
    found = train(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), images, torch.stack([dataset.labels[place] for place in rows]), steps=20)
    if loader:
        found.loader = {"dataset": lambda: dataset, "rows": len(dataset), "workers": 0, "shuffle": True}
    if validated:
        found.passes, found.wanted = [[INPUTS[1200:1600]]], [[LABELS[1200:1600]]]
    return found


def named(found):
    facts = answer(found, "augmentation")
    training = Training(signals={"loss": Series.of([2.3])}, experiments={"augmentation": Experiment("augmentation", "done", 1.0, facts)})
    detection = faults()["augmentation-destructive"].detect(training)
    return facts, detection is not None and detection.strength >= 0.8


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("change", [shift, faint])
def test_useful_augmentation_is_left_in_peace(change):
    facts, present = named(held(Digits(change)))
    assert facts["source"] == "switched"
    assert facts["what"] == "change"
    assert not present


@pytest.mark.parametrize("change", [drown, erase])
def test_destructive_augmentation_is_named(change):
    facts, present = named(held(Digits(change)))
    assert facts["plain"] > 0.8
    assert present


def test_batches_that_the_script_spoils_are_compared_with_the_data_set():
    facts, present = named(held(Digits(), drown))
    assert facts["source"] == "data set"
    assert present


@pytest.mark.parametrize("change", [lambda batch: (batch - 0.3) / 0.4, shift])
def test_batches_that_the_script_only_prepares_are_left_in_peace(change):
    assert not named(held(Digits(), change))[1]


def test_without_a_switch_validation_rows_stand_in():
    facts, present = named(held(Hidden()))
    assert facts["source"] == "validation"
    assert present


def test_labels_shuffled_in_training_alone_are_not_blamed_on_augmentation():
    labels = LABELS[torch.randperm(len(LABELS))]
    assert not named(held(Digits(shift, labels)))[1]
    assert not named(held(Digits(None, labels), loader=False))[1]


def test_the_data_set_stays_as_it_was():
    dataset = Digits(drown)
    answer(held(dataset), "augmentation")
    assert dataset.change is drown


def test_rows_of_one_kind_cannot_be_told_apart():
    rows = np.random.default_rng(0).normal(size=(400, 5))
    assert told_apart(rows[:200], rows[200:]) == pytest.approx(0.5, abs=0.1)
    assert told_apart(rows[:10], rows[10:]) is None
