"""What learns is compared with what the optimisers hold."""

import json

import pytest
import torch
from odd_tensors import ODD
from torch import nn

from lossdoctor.record.probes.coverage import describe_coverage


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def learned(model, inputs=None):
    model(torch.randn(5, 4) if inputs is None else inputs).square().sum().backward()
    return model


def test_all_held():
    model = learned(network())
    fields = describe_coverage(model, model.parameters())
    assert (fields["model_parameters"], fields["model_with_gradient"], fields["held"], fields["held_with_gradient"]) == (4, 4, 4, 4)
    assert fields["model_elements"] == fields["held_elements"] == 4 * 3 + 3 + 3 * 2 + 2
    assert (fields["missed"], fields["held_elsewhere"], fields["without_gradient"]) == (0, 0, 0)


def test_only_the_head_held():
    model = learned(network())
    fields = describe_coverage(model, model[2].parameters())
    assert (fields["missed"], fields["missed_elements"], fields["missed_names"]) == (2, 15, ["0.weight", "0.bias"])


def test_another_model_held():
    model, other = learned(network()), network()
    fields = describe_coverage(model, other.parameters())
    assert (fields["held_elsewhere"], fields["held_with_gradient"], fields["missed"]) == (4, 0, 4)


def test_frozen_parameters_are_not_missed():
    model = network()
    model[0].requires_grad_(False)
    fields = describe_coverage(learned(model), model[2].parameters())
    assert (fields["missed"], fields["frozen"], fields["frozen_elements"], fields["model_parameters"]) == (0, 2, 15, 2)


def test_a_gradient_of_zeros_is_none():
    model = learned(network(), torch.zeros(5, 4))
    assert torch.count_nonzero(model[0].weight.grad) == 0
    assert describe_coverage(model, [model[0].bias, *model[2].parameters()])["missed"] == 0


def test_a_gradient_of_nan_is_one():
    model = learned(network())
    model[0].weight.grad.fill_(float("nan"))
    assert describe_coverage(model, [model[0].bias, *model[2].parameters()])["missed"] == 1


def test_parts_outside_the_graph_have_no_gradient():
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "unused": nn.Linear(4, 2)})
    model["used"](torch.randn(3, 4)).sum().backward()
    fields = describe_coverage(model, model.parameters())
    assert fields["without_gradient_names"] == ["unused.weight", "unused.bias"]
    assert fields["missed"] == 0


def test_tied_weights_count_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model(torch.randn(2, 3)).sum().backward()
    assert describe_coverage(model, [])["missed"] == 1
    assert describe_coverage(model, [model[0].weight, model[1].weight])["held"] == 1


def test_layers_in_a_plain_list_are_unregistered():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = [nn.Linear(4, 4)], nn.Linear(4, 1)

    model = Hidden()
    inputs = torch.randn(2, 4, requires_grad=True)
    model.head(model.layers[0](inputs)).sum().backward()
    reached = [inputs, *model.layers[0].parameters(), *model.parameters()]
    fields = describe_coverage(model, model.parameters(), reached)
    assert (fields["unregistered"], fields["unregistered_elements"]) == (2, 20)
    assert describe_coverage(model, reached, reached)["unregistered"] == 0
    assert "unregistered" not in describe_coverage(model, reached)


def test_long_lists_of_names_are_cut():
    model = nn.ModuleList(nn.Linear(1, 1) for _ in range(20))
    fields = describe_coverage(model, [])
    assert fields["without_gradient"] == 40
    assert len(fields["without_gradient_names"]) == 10


def test_no_model_and_lazy_models_are_survived():
    weight = torch.ones(2, requires_grad=True)
    assert describe_coverage(None, [weight])["held_elsewhere"] == 1
    assert describe_coverage(nn.LazyLinear(3), [])["model_parameters"] == 2


@pytest.mark.parametrize("kind", ODD)
def test_every_kind_of_tensor_is_survived(kind):
    json.dumps(describe_coverage(network(), [ODD[kind]], [ODD[kind]]))
