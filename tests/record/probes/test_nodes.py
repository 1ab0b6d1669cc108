"""Names, shapes and makers of nodes."""

import torch

from lossdoctor.record.probes.nodes import base_name, maker, output_shape, through


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return 2 * value

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


def test_names_are_freed_of_their_ending():
    start = torch.randn(2, 3, requires_grad=True)
    assert base_name(start.log_softmax(1).grad_fn) == "LogSoftmax"
    assert base_name(start.squeeze().grad_fn) == "Squeeze"
    assert base_name(Twice.apply(start).grad_fn) == "Twice"
    assert base_name(start.sum().grad_fn.next_functions[0][0]) == "AccumulateGrad"


def test_a_maker_is_found_behind_views_and_a_leaf_has_none():
    start = torch.randn(2, 3, requires_grad=True)
    assert base_name(maker(start.exp().view(3, 2).t()[None])) == "Exp"
    assert maker(start) is None
    assert base_name(maker(start.view(6))) == "AccumulateGrad"
    assert through(None) is None


def test_shapes_of_results_are_read_from_the_node():
    start = torch.randn(2, 3, requires_grad=True)
    assert output_shape((start - torch.zeros(4, 1, 1)).grad_fn) == (4, 2, 3)
    first, second = start.exp().split([1, 2], 1)
    assert output_shape(first.grad_fn, first.output_nr) == (2, 1)
    assert output_shape(second.grad_fn, second.output_nr) == (2, 2)
    assert output_shape(object()) is None
