"""`checkup` and `can_memorize`: the seed figures, clear words for bad input, nothing touched."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import lossdoctor
from lossdoctor.core.errors import UsageError


def network(width=64, features=8, classes=4):
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))


@pytest.fixture
def sixteen():
    """Sixteen examples of four classes, labels drawn at random."""
    torch.manual_seed(0)
    return torch.randn(16, 8), torch.randint(0, 4, (16,))


def loader(inputs, targets, rows=32):
    return DataLoader(TensorDataset(inputs, targets), rows, shuffle=True)


def test_random_labels_start_at_guessing_and_are_memorised_within_200_steps(sixteen):
    done = lossdoctor.can_memorize(network, sixteen, functional.cross_entropy, steps=200)
    assert done.start == pytest.approx(math.log(4), abs=0.15)
    assert done.best < 0.01
    assert done.steps <= 200


def test_two_units_cannot_memorise_sixteen_examples(sixteen):
    done = lossdoctor.can_memorize(lambda: network(width=2), sixteen, functional.cross_entropy)
    assert done.best > 0.1
    assert set(done.curves) == {1e-2, 1e-3, 1e-4}


def test_the_same_again_and_nothing_is_touched(sixteen):
    model = nn.Sequential(network(), nn.Dropout(0.5))
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    first, second = (lossdoctor.can_memorize(model, sixteen, functional.cross_entropy) for _ in range(2))
    assert first == second
    assert first.best < 0.01  # dropout is off
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert torch.equal(state, torch.get_rng_state())


def test_a_checkup_of_a_healthy_problem_finds_nothing():
    torch.manual_seed(0)
    inputs = torch.randn(600, 8)
    labels = (inputs @ torch.randn(8, 4)).argmax(1)
    state, forward = torch.get_rng_state(), nn.Module.__call__
    report = lossdoctor.checkup(
        network, loader(inputs[:500], labels[:500]), functional.cross_entropy, validation=[(inputs[500:], labels[500:])]
    )
    assert [each.slug for each in report.present if each.severity != "advice"] == []
    assert {each["name"] for each in report.experiments if each["status"] == "done"} >= {"memorise", "baseline", "mixing", "stress"}
    assert torch.equal(state, torch.get_rng_state())
    assert nn.Module.__call__ is forward


def test_a_checkup_names_a_softmax_before_the_loss_and_mixed_examples():
    torch.manual_seed(0)
    inputs = torch.randn(600, 8)
    labels = (inputs @ torch.randn(8, 4)).argmax(1)
    probabilities = lossdoctor.checkup(lambda: nn.Sequential(network(), nn.Softmax(1)), loader(inputs, labels), functional.cross_entropy)
    assert probabilities.finding("softmax-before-cross-entropy").status == "present"
    mixed = lossdoctor.checkup(lambda: nn.Sequential(network(), nn.Softmax(0)), loader(inputs, labels), functional.cross_entropy)
    assert mixed.finding("batch-mixing").status == "present"


class Moody(nn.Linear):
    """Fail on the second call."""

    calls = 0

    def forward(self, values):
        self.calls += 1
        if self.calls == 2:
            raise ValueError("no such size")
        return super().forward(values)


ROWS = torch.randn(40, 8), torch.randint(0, 4, (40,))
BAD = {
    "the loader gave no batch": (network, [], functional.cross_entropy),
    "the model fails on batch 2: ValueError: no such size": (lambda: Moody(8, 4), [ROWS, ROWS], functional.cross_entropy),
    "a tensor of shape \\(40,\\)": (network, [ROWS], lambda output, target: functional.cross_entropy(output, target, reduction="none")),
    "loss_fn returned a float": (network, [ROWS], lambda output, target: functional.cross_entropy(output, target).item()),
    "cut from the model": (network, [ROWS], lambda output, target: functional.cross_entropy(output.detach(), target)),
    "batch 1 is a Tensor": (network, [ROWS[0]], functional.cross_entropy),
    "make_model returned a tuple": (lambda: (1, 2), [ROWS], functional.cross_entropy),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_told_in_words_and_leaves_nothing_behind(words):
    forward = nn.Module.__call__
    with pytest.raises(UsageError, match=words):
        lossdoctor.checkup(*BAD[words])
    assert nn.Module.__call__ is forward
