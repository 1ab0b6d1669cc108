"""Norms of gradients and weights agree with the obvious loop, and no kind of tensor breaks them."""

import math

import pytest
import torch
from odd_tensors import ODD

from lossdoctor.record.probes.gradient import gradient_norms
from lossdoctor.record.probes.tensors import local, positions, real
from lossdoctor.record.probes.weights import weight_norms


def slow_norm(tensor):
    """The obvious twin: dense, double precision, one element after the other."""
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return math.sqrt(sum(abs(complex(value)) ** 2 for value in dense.to(torch.complex128).flatten().tolist()))


def with_gradient(gradient):
    parameter = torch.zeros(gradient.shape, dtype=gradient.dtype, requires_grad=True)
    parameter.grad = gradient
    return parameter


MIXED = [
    torch.randn(5, 3),
    torch.randn(4, dtype=torch.float64),
    torch.randn(2, 3, dtype=torch.complex64),
    torch.empty(0),
    torch.full((1000,), 3000.0, dtype=torch.float16),
    torch.randn(6, 2).t(),
    torch.tensor(-2.0),
    torch.randn(7).to(torch.bfloat16),
    ODD["sparse"],
]


def test_gradient_norms_agree_with_the_slow_twin():
    found = gradient_norms([with_gradient(gradient) for gradient in MIXED])
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([slow_norm(gradient) for gradient in MIXED], rel=1e-3)


def test_weight_norms_agree_with_the_slow_twin_also_for_integers():
    weights = [*MIXED, torch.tensor([3, 4]), torch.tensor([True, False])]
    assert weight_norms(weights).tolist() == pytest.approx([slow_norm(weight) for weight in weights], rel=1e-3)


def test_no_gradient_is_nan_and_zero_gradient_is_zero():
    parameters = [torch.zeros(2, requires_grad=True), with_gradient(torch.zeros(2))]
    missing, zero = gradient_norms(parameters).tolist()
    assert math.isnan(missing)
    assert zero == 0


def test_no_parameters_give_an_empty_tensor():
    assert gradient_norms([]).shape == (0,)
    assert weight_norms([]).shape == (0,)


def test_not_finite_gradients_show_in_the_norm():
    infinite, missing = gradient_norms(
        [with_gradient(torch.tensor([1.0, math.inf])), with_gradient(torch.tensor([math.nan, 1.0]))]
    ).tolist()
    assert math.isinf(infinite)
    assert math.isnan(missing)


@pytest.mark.parametrize("kind", ODD)
def test_every_kind_of_tensor_gives_a_number_or_nan(kind):
    assert weight_norms([ODD[kind], torch.tensor([3.0, 4.0])])[1] == 5


@pytest.mark.parametrize("kind", ["meta", "fake", "nested", "uninitialised"])
def test_a_tensor_without_values_has_none(kind):
    assert local(ODD[kind]) is None


@pytest.mark.parametrize("kind", ["subclass", "distributed"])
def test_a_tensor_subclass_gives_its_own_values(kind):
    assert type(local(ODD[kind])) is torch.Tensor
    assert weight_norms([ODD[kind]]).item() == pytest.approx(math.sqrt(6))


def test_a_transformed_tensor_has_no_values():
    seen = []

    def loss(weight):
        seen.append(local(weight))
        return (weight**2).sum()

    torch.func.grad(loss)(torch.ones(2))
    assert seen == [None]


def test_measuring_leaves_no_graph():
    parameter = torch.ones(2, requires_grad=True)
    assert not weight_norms([parameter]).requires_grad
    (gradient,) = torch.autograd.grad((parameter**3).sum(), parameter, create_graph=True)
    parameter.grad = gradient
    assert not gradient_norms([parameter]).requires_grad


def test_real_numbers_keep_the_norm_of_complex_ones():
    assert real(ODD["conjugate"]).norm().item() == pytest.approx(slow_norm(ODD["conjugate"]))


def test_positions_are_fixed_unbiased_and_without_the_global_generator():
    before = torch.get_rng_state()
    drawn = positions(4096, 1_000_000)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(drawn, positions(4096, 1_000_000))
    # Of rows of 1000 columns every tenth of the columns gets its share: 410 +- 6 standard deviations of 19.
    assert torch.bincount(drawn % 1000 // 100).sub(409.6).abs().max() < 6 * 19.2


def test_few_positions_are_drawn_once_each():
    assert len(positions(256, 300).unique()) == 256
