"""What the census counts, against counting by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lossdoctor.machine.census import Census, Counting
from lossdoctor.machine.looking import own_place


def counted(work: object) -> Census:
    census = Census()
    with Counting(census):
        work()  # type: ignore[operator]
    return census


def test_a_training_step_of_a_linear_layer() -> None:
    rows, features, units = 16, 32, 8
    layer = nn.Linear(features, units)
    inputs = torch.randn(rows, features)
    census = counted(lambda: layer(inputs).sum().backward())
    product = 2 * rows * features * units
    assert census.flops == 2 * product, "forward, and the gradient of the weight; the inputs want none"
    assert census.flops_by_dtype == {"float32": 2 * product}


def test_precision_is_told_apart() -> None:
    a = torch.randn(8, 8)
    census = counted(lambda: (a @ a, a.bfloat16() @ a.bfloat16(), a.double() @ a.double()))
    assert census.flops_by_dtype == dict.fromkeys(("float32", "bfloat16", "float64"), 2 * 8**3)


def test_views_and_empty_tensors_move_nothing() -> None:
    a = torch.randn(64, 64)
    census = counted(lambda: (a.t(), a.view(-1), a[3], torch.empty(1000), a.detach()))
    assert census.bytes == 0


def test_bytes_of_a_sum_are_what_is_read_and_written() -> None:
    a = torch.randn(1000)
    assert counted(lambda: a + a).bytes == 3 * 4000
    assert counted(lambda: a.add_(1.0)).bytes == 2 * 4000


def test_waits_are_counted_at_their_line() -> None:
    a = torch.randn(8)

    def loop() -> None:
        for _ in range(3):
            a.sum().item()
        if a.sum() > 100:
            pass
        a.nonzero()

    places = counted(loop).waits
    assert sum(places.values()) == 5
    assert max(places.values()) == 3
    assert {file for file, _ in places} == {__file__}


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_counts_its_two_products_and_the_five_of_its_gradient(heads: int) -> None:
    shape = (2, heads, 16, 8)
    query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))
    census = counted(lambda: nn.functional.scaled_dot_product_attention(query, key, value).sum().backward())
    product = 2 * 2 * heads * 16 * 16 * 8
    assert census.flops in (2 * product + 5 * product, 2 * product + 4 * product), "fused, which does one again, or written out"


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers_count_the_products_of_all_gates(kind: type[nn.Module]) -> None:
    steps, rows, features, units = 7, 4, 16, 32
    layer = kind(features, units)
    census = counted(lambda: layer(torch.randn(steps, rows, features)))
    gates = {nn.GRU: 3, nn.LSTM: 4}[kind]  # type: ignore[index]
    assert census.flops == pytest.approx(2 * steps * rows * gates * units * (features + units), rel=0.01)


def test_counters_of_an_optimiser_are_no_waits_of_the_script() -> None:
    layer = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    census = Census()
    with Counting(census, own_place):
        loss = layer(torch.ones(3, 4)).sum()
        loss.backward()
        optimizer.step()
        loss.item()
    assert sum(census.waits.values()) == 1
