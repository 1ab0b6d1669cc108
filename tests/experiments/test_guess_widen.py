"""What guessing gives is found for any loss, and a wider model is only ever the same model with more units."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.core.run import Experiment, Training
from lossdoctor.derive.learnable import learnable
from lossdoctor.experiments import baseline, guess, memorise, widen
from lossdoctor.experiments.examples import examples
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from tests.experiments.conftest import network, train


def by_hand(output, target):
    scores = output - output.logsumexp(dim=1, keepdim=True)
    return -scores[torch.arange(len(target)), target].mean()


LOSSES = {"by hand": by_hand, "known": functional.cross_entropy, "scaled": lambda output, target: by_hand(output, target) / 4}


def entropy(labels):
    shares = torch.bincount(labels).double() / len(labels)
    return float(-(shares * shares.log()).sum())


@pytest.mark.parametrize("name", LOSSES)
def test_the_guess_of_a_classifier_is_the_entropy_of_its_labels(problem, name):
    held = train(network(), *problem, LOSSES[name])
    found = guess.measure(Replay(held), Deadline.after(30), {})
    used = held.batches[: found["rows"] // 32]
    labels = torch.cat([next(c for c in batch.program.constants if c.dtype == torch.long and c.max() < 4) for batch in used])
    unit = 4 if name == "scaled" else 1
    assert unit * found["guess"] == pytest.approx(entropy(labels), abs=2e-3)
    assert unit * found["zero"] == pytest.approx(math.log(4), abs=1e-4)
    assert found["classes"] == 4


def test_the_guess_of_probabilities_stays_among_probabilities(problem):
    model = nn.Sequential(network(), nn.Softmax(1))
    held = train(model, *problem, lambda output, target: -output[torch.arange(len(target)), target].log().mean())
    found = guess.measure(Replay(held), Deadline.after(30), {})
    assert found["form"] == "probabilities"
    assert found["guess"] == pytest.approx(entropy(problem[1]), abs=0.05)


def test_the_guess_of_a_regression_is_the_spread_of_its_targets(problem):
    inputs, _ = problem
    targets = inputs[:, :1] * 3 + 5
    held = train(network(classes=1), inputs, targets, lambda output, target: ((output - target) ** 2).mean())
    found = guess.measure(Replay(held), Deadline.after(30), {})
    assert found["guess"] == pytest.approx(9.0, rel=0.2)


def test_a_loss_that_falls_without_end_has_no_guess(problem):
    inputs, _ = problem
    held = train(network(classes=1), inputs, inputs[:, :1].abs() + 0.1, lambda output, advantage: -(output * advantage).mean(), steps=5)
    with pytest.raises(ReplayRefused, match="no constant answer is best"):
        guess.measure(Replay(held), Deadline.after(30), {})


def test_the_numbers_of_the_rows_are_no_targets(problem):
    inputs, labels = problem
    data = examples(Replay(train(network(), inputs, labels, by_hand)))
    assert data.kind == "classes"
    known = {tuple(row): int(label) for row, label in zip(inputs.double().tolist(), labels, strict=True)}
    assert all(known[tuple(row)] == int(target) for row, target in zip(data.inputs.tolist(), data.targets, strict=True))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3)
    )


def test_every_inner_width_is_multiplied_and_both_ends_stay():
    torch.manual_seed(0)
    held = train(convolutional(), torch.randn(400, 1, 4, 4), torch.randint(0, 3, (400,)), steps=12)
    replay = Replay(held)
    wide = widen.widened(replay, replay.batches[0])
    factor = widen.FACTOR
    assert wide[0].weight.shape == (4 * factor, 1, 3, 3)
    assert wide[1].num_features == 4 * factor
    assert wide[6].weight.shape == (3, 16 * factor)


def test_a_wider_model_helps_where_two_units_are_too_few_and_not_where_there_are_enough(problem):
    inputs, _ = problem
    targets = (torch.sin(2 * inputs[:, :1]) * inputs[:, 1:2]).contiguous()
    loss = lambda output, target: functional.mse_loss(output, target)  # noqa: E731
    narrow, able = (train(network(width, classes=1), inputs, targets, loss) for width in (2, 128))
    ratios = []
    for held in (narrow, able):
        facts = widen.measure(Replay(held), Deadline.after(60), {})
        ratios.append(facts["own"] / facts["wide"])
    assert ratios[0] > 1.3 * max(1.0, ratios[1])


def test_a_model_whose_sum_of_branches_no_longer_fits_is_not_widened(problem):
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.second(x + self.first(x))

    replay = Replay(train(Beside(), *problem))
    with pytest.raises(ReplayRefused, match="do not fit together"):
        widen.widened(replay, replay.batches[0])


def test_inputs_far_off_scale_do_not_make_a_model_look_too_small():
    torch.manual_seed(0)
    inputs = torch.randn(800, 8) * 3e4 + 1e5
    labels = ((inputs - 1e5)[:, :2] > 0).long() @ torch.tensor([1, 2])
    model = nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 4))
    facts = memorise.measure(Replay(train(model, inputs, labels)), Deadline.after(60), {})
    assert min(facts["own"], facts["fresh_median"]) > memorise.FAILED
    assert facts["standardised"] < memorise.FAILED


@pytest.mark.parametrize(("shuffled", "expected"), [(False, True), (True, False)])
def test_few_rows_are_told_one_by_one(shuffled, expected):
    torch.manual_seed(1)
    labels = torch.arange(40) % 4
    inputs = torch.eye(8)[labels] * 4 + 0.5 * torch.randn(40, 8)
    targets = labels[torch.randperm(40)] if shuffled else labels
    facts = baseline.measure(Replay(train(network(), inputs, targets), of_model=False), Deadline.after(30), {})
    assert "network_loss" not in facts
    run = Training(experiments={"baseline": Experiment("baseline", "done", 1.0, facts)})
    assert learnable(run) is expected
