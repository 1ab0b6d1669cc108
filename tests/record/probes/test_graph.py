"""What the graph of a loss shows: all pairs formed by accident, probabilities where logits are wanted, what is reached."""

import json
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from lossdoctor.record.probes.graph import describe_graph, leaves

N = 6
torch.manual_seed(0)
INPUTS, TARGETS = torch.randn(N, 3), torch.randn(N)


def predict():
    return nn.Linear(3, 1)(INPUTS)


def broadcast(loss):
    return describe_graph(loss)["broadcast"]


def log_cosh(difference):
    return torch.log(torch.cosh(difference)).mean()


SICK = {
    "mean square": lambda p: ((p - TARGETS) ** 2).mean(),
    "the other way round": lambda p: ((TARGETS - p) ** 2).mean(),
    "the target upright": lambda p: ((p.squeeze(1) - TARGETS[:, None]) ** 2).mean(),
    "row and column": lambda p: ((p - TARGETS[None, :]) ** 2).mean(),
    "absolute": lambda p: (p - TARGETS).abs().mean(),
    "square root": lambda p: ((p - TARGETS) ** 2).mean().sqrt(),
    "norm": lambda p: torch.linalg.norm(p - TARGETS),
    "summed by row": lambda p: ((p - TARGETS) ** 2).sum(1).mean(),
    "log cosh": lambda p: log_cosh(p - TARGETS),
    "weighted": lambda p: (torch.rand(N, 1) * (p - TARGETS) ** 2).mean(),
    "with a penalty": lambda p: ((p - TARGETS) ** 2).mean() + 0.1 * p.pow(2).mean(),
    "scaled for accumulation": lambda p: ((p - TARGETS) ** 2).mean() / 4,
    "policy gradient": lambda p: -(p.squeeze(1) * torch.randn(N, 1)).mean(),
    "relative": lambda p: ((p - TARGETS) / TARGETS).abs().mean(),
    "standardised prediction": lambda p: (((p * 3 + 1) - TARGETS) ** 2).mean(),
    "known loss": lambda p: F.mse_loss(p, TARGETS),
    "known smooth loss": lambda p: F.smooth_l1_loss(p, TARGETS),
    "known Huber loss": lambda p: F.huber_loss(p, TARGETS),
    "negative likelihood": lambda p: (0.5 * (TARGETS - p) ** 2 / p.exp() + p).mean(),
}


@pytest.mark.parametrize("name", SICK)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_all_pairs_by_accident_are_seen(name):
    (found, *_) = broadcast(SICK[name](predict()))
    assert found["result"] == [N, N]
    assert found["operand"] in ([N, 1], [N])
    assert found["op"].endswith("Backward0")


def contrast(p):
    embedded = F.normalize(torch.cat([p, p**2], 1))
    return F.cross_entropy(embedded @ embedded.t() / 0.1, torch.arange(N))


def cox(p):
    """A survival loss: everybody's risk against all who are still there."""
    risk, there = p.squeeze(1), (TARGETS[None, :] >= TARGETS[:, None]).float()
    return -(risk - torch.log((risk.exp() * there).sum(1))).mean()


def attention(p):
    scores = torch.cat([p, p], 1) @ torch.cat([p, p], 1).t() + torch.zeros(N, 1)
    return (torch.softmax(scores, 1) @ p).mean()


HEALTHY = {
    "same shape": lambda p: ((p.squeeze(1) - TARGETS) ** 2).mean(),
    "both upright": lambda p: ((p - TARGETS[:, None]) ** 2).mean(),
    "known loss": lambda p: F.mse_loss(p.squeeze(1), TARGETS),
    "one target for all": lambda p: ((p - 1.0) ** 2).mean(),
    "a weight for each row": lambda p: ((p.repeat(1, 4) - torch.zeros(N, 4)) ** 2 * torch.rand(N, 1)).mean(),
    "a weight for each column": lambda p: ((p.repeat(1, N) - torch.zeros(N, N)) ** 2 * torch.rand(N)).mean(),
    "a mask": lambda p: ((p.squeeze(1) - TARGETS) * (TARGETS > 0)).pow(2).sum() / 3,
    "quantiles": lambda p: torch.maximum(torch.tensor([0.1, 0.5, 0.9]) * (TARGETS[:, None] - p), p - p).mean(),
    "pairs of predictions": lambda p: (p - p.t()).pow(2).mean(),
    "ranking": lambda p: torch.relu(1 - (p - p.t()) * torch.sign(TARGETS[:, None] - TARGETS[None])).mean(),
    "pairs on purpose": lambda p: (p.squeeze(1)[:, None] - TARGETS[None, :]).abs().mean(),
    "kernel": lambda p: torch.exp(-((p - TARGETS) ** 2)).mean(),
    "weights of all pairs": lambda p: (p * torch.rand(N, N)).mean(),
    "contrast": contrast,
    "survival": cox,
    "attention": attention,
    "distances": lambda p: torch.cdist(p, TARGETS[:, None]).mean(),
    "square images": lambda p: ((p.view(N, 1) * torch.ones(N, N, requires_grad=True) - torch.zeros(N, N)) ** 2).mean(),
    "one row": lambda p: ((p[:1] - TARGETS[:1]) ** 2).mean(),
    "classes": lambda p: F.cross_entropy(p.repeat(1, N), torch.arange(N)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_pairs_that_are_meant_and_ordinary_broadcasting_are_quiet(name):
    assert broadcast(HEALTHY[name](predict())) == []


def test_an_axis_given_inside_the_model_hides_all_pairs():
    """A known miss: it looks like pairs on purpose."""
    assert broadcast(((predict().squeeze(1).unsqueeze(1) - TARGETS) ** 2).mean()) == []


LOGITS = nn.Linear(3, 4)
LABELS = torch.randint(0, 4, (N,))


@pytest.mark.parametrize(
    ("loss", "op"),
    [
        (lambda x: F.cross_entropy(x.softmax(1), LABELS), "SoftmaxBackward0"),
        (lambda x: F.cross_entropy(x.softmax(1).view(-1, 4)[:], LABELS) + 1, "SoftmaxBackward0"),
        (lambda x: F.cross_entropy(x.sigmoid(), LABELS), "SigmoidBackward0"),
        (lambda x: F.nll_loss(x.softmax(1), LABELS), "SoftmaxBackward0"),
        (lambda x: -x.softmax(1).log_softmax(1).gather(1, LABELS[:, None]).mean(), "SoftmaxBackward0"),
        (lambda x: (x.softmax(1).logsumexp(1) - x.softmax(1)[range(len(x)), LABELS]).mean(), "SoftmaxBackward0"),
        (lambda x: (x.logsumexp(1) - x[range(len(x)), LABELS]).mean(), None),
        (lambda x: F.binary_cross_entropy_with_logits(x.sigmoid(), torch.ones(N, 4)), "SigmoidBackward0"),
        (lambda x: F.cross_entropy(x, LABELS), None),
        (lambda x: F.nll_loss(x.softmax(1).log(), LABELS), None),
        (lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones(N, 4)), None),
        (lambda x: F.cross_entropy(F.linear(x.softmax(1), torch.eye(4, requires_grad=True)), LABELS), None),
    ],
)
def test_probabilities_that_enter_what_wants_logits(loss, op):
    found = describe_graph(loss(LOGITS(INPUTS)))["probability_op"]
    assert (found and found["op"]) == op


def test_operations_from_the_loss_to_the_first_layer():
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    ops = describe_graph(((model(INPUTS).squeeze(1) - TARGETS) ** 2).mean())["ops"]
    assert ops == ["MeanBackward0", "PowBackward0", "SubBackward0", "SqueezeBackward1", "AddmmBackward0"]


def test_leaves_are_all_parameters_that_are_reached():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
    unused = nn.Linear(2, 2)
    frozen = model[0].bias.requires_grad_(False)
    loss = model(INPUTS).sum()
    loss.backward(retain_graph=True)
    with_gradient = {id(parameter) for parameter in [*model.parameters(), *unused.parameters()] if parameter.grad is not None}
    assert {id(leaf) for leaf in leaves(loss)} == with_gradient
    assert id(frozen) not in with_gradient
    assert describe_graph(loss)["leaves"] == 3


def test_a_value_without_a_graph():
    fields = describe_graph(torch.tensor(1.0))
    assert (fields["broadcast"], fields["ops"], fields["leaves"], fields["requires_grad"]) == ([], [], 0, False)
    weight = torch.tensor(1.0, requires_grad=True)
    assert leaves(weight) == [weight]


def test_a_very_deep_graph_is_walked_in_part():
    value = weight = torch.ones(2, requires_grad=True)
    for _ in range(5000):
        value = value + 1
    fields = describe_graph(value.sum())
    assert fields["complete"] is False
    assert leaves(value.sum())[0] is weight


def test_describing_leaves_the_graph_usable():
    prediction = predict()
    loss = (prediction * torch.rand(N)).mean()
    json.dumps(describe_graph(loss))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss.backward()


def test_a_graph_that_is_freed_is_survived():
    loss = (predict() * torch.rand(N)).mean()
    loss.backward()
    assert describe_graph(loss)["broadcast"] == []


def test_custom_functions_and_checkpoints_are_walked():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(3, 1)
    loss = ((checkpoint(layer, INPUTS, use_reentrant=False) - TARGETS) ** 2).mean()
    assert len(broadcast(loss)) == 1
    assert len(leaves(loss)) == 2
    loss.backward()


def test_a_packed_sequence_is_seen():
    inputs, layer = torch.randn(3, 5, 2, requires_grad=True), nn.GRU(2, 4, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor([5, 2, 1]), batch_first=True)
    assert describe_graph(layer(packed)[0].data.sum())["packed"]
    assert not describe_graph(layer(inputs)[0].sum())["packed"]
