"""Do examples mix, do tokens see their future, does the loss survive extremes: on models whose answer is known."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.core.fault import faults
from lossdoctor.core.run import Experiment, Training
from lossdoctor.experiments.workup import Workup
from tests.experiments.conftest import network, train
from tests.experiments.test_answers import answer

TOKENS = 20


class Attention(nn.Module):
    """Predict the next token by one layer of attention, written for these tests."""

    def __init__(self, causal, positions=True):
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(TOKENS, 16)
        self.positions = nn.Parameter(torch.randn(12, 16)) if positions else None
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, TOKENS)

    def forward(self, tokens):
        values = self.embedding(tokens)
        if self.positions is not None:
            values = values + self.positions[: tokens.shape[1]]
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return self.head(self.attention(values, values, values, attn_mask=mask, need_weights=False)[0])


def token_loss(output, target):
    return functional.cross_entropy(output.reshape(-1, TOKENS), target.reshape(-1))


@pytest.fixture
def text():
    torch.manual_seed(0)
    return torch.randint(0, TOKENS, (200, 13))


def present(name, held):
    """Return the slugs of the faults that an experiment alone decides."""
    training = Training(experiments={name: Experiment(name, "done", 0.1, answer(held, name))})
    asked = [fault for fault in faults().values() if fault.needs == (name,)]
    return {fault.slug for fault in asked if (found := fault.detect(training)) and found.strength >= 0.8}


@pytest.mark.parametrize(("causal", "slugs"), [(True, set()), (False, {"causal-leak"})])
def test_attention_without_a_mask_leaks(text, causal, slugs):
    held = train(Attention(causal), text[:, :-1], text[:, 1:], token_loss, steps=4)
    assert present("tokens", held) == slugs


class Flat(nn.Module):
    """Give outputs with examples and positions in one dimension."""

    def __init__(self, model, time_first=False):
        super().__init__()
        self.model, self.time_first = model, time_first

    def forward(self, tokens):
        output = self.model(tokens)
        return (output.transpose(0, 1) if self.time_first else output).flatten(0, 1)


@pytest.mark.parametrize(("causal", "slugs"), [(True, set()), (False, {"causal-leak"})])
def test_outputs_of_all_positions_in_one_dimension_are_told_apart(text, causal, slugs):
    assert present("tokens", train(Flat(Attention(causal)), text[:, :-1], text[:, 1:], token_loss, steps=4)) == slugs


def test_positions_before_examples_in_one_dimension_say_nothing_of_the_future(text):
    def loss(output, target):
        return functional.cross_entropy(output, target.transpose(0, 1).reshape(-1))

    assert present("tokens", train(Flat(Attention(True), time_first=True), text[:, :-1], text[:, 1:], loss, steps=4)) == set()


def test_positions_that_start_at_zero_are_positions(text):
    model = Attention(True)
    nn.init.zeros_(model.positions)
    assert present("tokens", train(model, text[:, :-1], text[:, 1:], token_loss, steps=4)) == set()


def test_targets_that_are_the_inputs_and_a_model_without_order(text):
    assert present("tokens", train(Attention(True), text[:, :-1], text[:, :-1], token_loss, steps=4)) == {"target-shift-wrong"}
    assert present("tokens", train(Attention(True, positions=False), text[:, :-1], text[:, 1:], token_loss, steps=4)) == {
        "position-missing"
    }


def test_a_leak_is_what_the_gradient_says_too(text):
    """The slow way: the gradient of an output in the embeddings of later tokens."""
    for causal in (True, False):
        model = Attention(causal).eval()
        embedded = model.embedding(text[:4, :-1]).detach().requires_grad_()
        model.embedding = nn.Identity()
        positions = model.positions
        model.positions = nn.Parameter(positions.detach()[None].squeeze(0))
        (gradient,) = torch.autograd.grad(model(embedded)[:, 5].sum(), embedded)
        leaks = bool(gradient[:, 6:].abs().max() > 0)
        assert leaks == (not causal)


class Rows(nn.Module):
    """Mix the rows of a batch as beginners do."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.body, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
        self.memory = nn.LSTM(8, 32) if how == "lstm" else None

    def forward(self, values):
        if self.how == "kept":
            return self.head(self.body(values).relu())
        if self.how == "view":
            return self.head(self.body(values).relu().t().reshape(len(values), 32))
        if self.how == "softmax":
            return self.head(self.body(values).relu()).softmax(0)
        return self.head(self.memory(values[:, None].expand(-1, 3, -1))[0][:, -1])


@pytest.mark.parametrize(
    ("how", "slugs"),
    [("kept", set()), ("view", {"batch-mixing"}), ("softmax", {"batch-mixing"}), ("lstm", {"batch-mixing", "batch-time-swapped"})],
)
def test_mixed_rows_are_named(problem, how, slugs):
    assert present("mixing", train(Rows(how), *problem, steps=4)) == slugs


def test_mixing_is_what_the_gradient_says_too(problem):
    """The slow way: the gradient of one output in every input."""
    inputs = problem[0][:6]
    for how in ("kept", "view", "softmax"):
        jacobian = torch.autograd.functional.jacobian(Rows(how).eval(), inputs).abs().sum((1, 3))  # output row, input row
        mixes = bool((jacobian - jacobian.diag().diag() > 1e-6).any())
        assert mixes == (how != "kept")


def test_a_model_of_two_inputs_is_not_taken_for_mixing(problem):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, first, second):
            return self.body(torch.cat([first, second], 1))

    from lossdoctor.experiments.captured import captured

    held = captured(Two(), [((problem[0][:32, :4], problem[0][:32, 4:]), problem[1][:32])], functional.cross_entropy)
    assert present("mixing", held) == set()


def test_batch_norm_and_dropout_do_not_count_as_mixing(problem):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.Dropout(), nn.Linear(16, 4))
    assert present("mixing", train(model, *problem, steps=4)) == set()


LOSSES = {
    "by hand": (lambda output, target: -torch.log(output.softmax(1))[torch.arange(len(target)), target].mean(), {"loss-not-finite-op"}),
    "clamped": (lambda output, target: -torch.log(output.softmax(1).clamp_min(1e-8))[torch.arange(len(target)), target].mean(), set()),
    "torch's": (functional.cross_entropy, set()),
    "exponential": (lambda output, target: (output.exp() - target[:, None] * output).mean(), set()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_logarithm_of_zero_is_found_before_it_happens(problem, name):
    loss, slugs = LOSSES[name]
    assert present("stress", train(network(), *problem, loss, steps=4)) == slugs


def test_a_batch_of_one_and_an_empty_mask_are_tried(text):
    mask = torch.ones(200, 12, dtype=torch.bool)

    def loss(output, target):
        each = functional.cross_entropy(output.transpose(1, 2), target, reduction="none")
        return each[mask[: len(target)]].mean()

    facts = answer(train(Attention(True), text[:, :-1], text[:, 1:], loss, steps=4), "stress")
    assert isinstance(facts["single"], float)
    assert facts["empty_mask"] == "nan"


def test_a_penalty_that_drowns_the_loss(problem):
    def loss(weight):
        return lambda output, target: functional.mse_loss(output[:, 0], target.float()) + weight * output.square().sum()

    assert present("terms", train(network(), *problem, loss(1e-5), steps=20)) == set()
    drowned = answer(train(network(), *problem, loss(10.0), steps=20), "terms")
    assert drowned["share"] > 0.9
    assert drowned["alone"] < drowned["together"]


def test_what_does_not_apply_is_unknown(problem):
    for name in ("tokens", "terms", "held_out"):
        found = Workup(train(network(), *problem, steps=4)).answer({"experiment": name, "seconds": 5})
        assert found["status"] == "unknown"
        assert found["facts"]["reason"]


def test_validation_rows_beside_training_rows(problem):
    inputs, labels = problem
    held = train(network(), inputs[:1000], labels[:1000], steps=100)
    people = torch.randn(150, 24).repeat_interleave(10, 0) + 0.2 * torch.randn(1500, 24)
    order = torch.randperm(1500)
    grouped = train(network(features=24), people[order[:1200]], torch.randint(0, 4, (1200,)), steps=100)
    cases = (
        (held, inputs[1000:1400], set()),
        (held, inputs[800:1200], {"train-val-leak"}),
        (grouped, people[order[1200:]], {"train-val-leak"}),
    )
    for captures, rows, slugs in cases:
        captures.passes = [[rows]]
        assert present("held_out", captures) == slugs


def test_classes_mixed_in_one_row_keep_the_loss_from_zero(problem):
    inputs, labels = problem
    hard = functional.one_hot(labels, 4).float()
    mixed = 0.7 * hard + 0.3 * hard.roll(1, 0)
    assert answer(train(network(), inputs, mixed), "objective")["fractional"] > 0.5
    assert answer(train(network(), inputs, hard), "objective")["fractional"] == 0.0


def test_counts_of_words_are_sparse_and_not_scaled_twice():
    torch.manual_seed(0)
    counts = torch.log1p(torch.poisson(torch.full((600, 400), 0.01)))
    labels = (counts[:, :200].sum(1) > counts[:, 200:].sum(1)).long()
    sparse = answer(train(network(features=400, classes=2), counts, labels), "prepared")
    assert sparse["between"] < 0.1
    assert "own" not in sparse
    assert "own" in answer(train(network(features=400, classes=2), counts / 255, labels), "prepared")
