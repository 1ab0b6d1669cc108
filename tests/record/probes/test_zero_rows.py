"""Units without any gradient agree with the loop over rows."""

import math

import pytest
import torch
from odd_tensors import ODD
from torch import nn

from lossdoctor.record.probes.zero_rows import zero_rows


def slow(weight, bias, axis=0):
    """The obvious twin: one output unit after the other."""
    count = weight.shape[axis]
    dead = 0
    for unit in range(count):
        values = weight.grad.select(axis, unit).flatten().tolist()
        dead += all(value == 0 for value in values) and (bias is None or bias.grad[unit].item() == 0)
    return dead / count


def measure(model, **kwargs):
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, zero_rows(parameters, names, **kwargs).tolist(), strict=True))


def backward(model, *shape):
    model(torch.randn(*shape)).square().sum().backward()
    return model


def test_dead_units_of_a_network_agree_with_the_slow_twin():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].bias[:3] = -100
        model[2].bias[1] = -100
    found = measure(backward(model, 16, 5))
    for place in (0, 2, 4):
        assert found[f"{place}.weight"] == slow(model[place].weight, model[place].bias)
        assert math.isnan(found[f"{place}.bias"])
    assert found["0.weight"] >= 3 / 8


def test_a_unit_that_only_its_bias_moves_is_not_dead():
    layer = nn.Linear(3, 2)
    layer(torch.zeros(4, 3)).sum().backward()
    assert measure(layer)["weight"] == 0
    layer.bias.grad.zero_()
    assert measure(layer)["weight"] == 1


@pytest.mark.parametrize(
    ("layer", "shape", "axis"),
    [
        (nn.Conv2d(2, 6, 3), (4, 2, 8, 8), 0),
        (nn.ConvTranspose2d(2, 6, 3), (4, 2, 8, 8), 1),
        (nn.Linear(3, 5, bias=False), (4, 3), 0),
        (nn.Conv1d(2, 4, 3, bias=False), (4, 2, 8), 0),
    ],
)
def test_other_layers_agree_with_the_slow_twin(layer, shape, axis):
    outputs = layer(torch.randn(*shape))
    outputs.movedim(1, -1)[..., ::2].sum().backward()
    found = measure(layer)["weight"]
    assert found == pytest.approx(slow(layer.weight, layer.bias, axis))
    assert found > 0


def test_names_pair_weights_and_biases_of_attention_and_recurrence():
    layer = nn.GRU(2, 3)
    layer(torch.randn(5, 2, 2))[0].sum().backward()
    layer.weight_ih_l0.grad.zero_()
    assert measure(layer)["weight_ih_l0"] == 0
    layer.bias_ih_l0.grad.zero_()
    assert measure(layer)["weight_ih_l0"] == 1


def test_embeddings_are_skipped_when_told_and_sparse_ones_always():
    table = nn.Embedding(10, 3)
    table(torch.tensor([1])).sum().backward()
    assert measure(table)["weight"] == pytest.approx(0.9)
    assert math.isnan(measure(table, skip={"weight"})["weight"])
    sparse = nn.Embedding(10, 3, sparse=True)
    sparse(torch.tensor([1])).sum().backward()
    assert math.isnan(measure(sparse)["weight"])


def test_not_finite_gradients_are_not_zero():
    weight = torch.ones(2, 2, requires_grad=True)
    weight.grad = torch.tensor([[math.nan, 0.0], [0.0, 0.0]])
    assert zero_rows([weight], ["w"]).item() == 0.5


def test_no_gradient_is_unknown():
    assert math.isnan(zero_rows([torch.ones(2, 2)], ["w"]).item())
    assert zero_rows([], []).shape == (0,)


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind not in ("uninitialised", "bool", "bytes")])
def test_every_kind_of_gradient_is_survived(kind):
    class Holder:
        grad = ODD[kind]
        device = torch.device("cpu")
        is_meta = False

        def dim(self):
            return 2

    assert zero_rows([Holder()], ["layer.weight"]).shape == (1,)
