"""Accumulation, precision, memory, gradient flow, rate range and the look at the data, each beside a slow or known answer."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.experiments import accumulation
from lossdoctor.experiments.replay import Replay
from tests.experiments.conftest import network, train
from tests.experiments.test_answers import answer


def test_accumulation_over_four_times_two_equals_one_batch_of_eight(problem):
    facts = answer(train(network(), *problem, rows=8, steps=4), "accumulation")
    assert (facts["rows"], facts["parts"]) == (8, 4)
    assert facts["divided"] == pytest.approx(1.0, abs=1e-6)
    assert facts["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert facts["difference"] < 1e-6
    assert facts["undivided"] == pytest.approx(4.0, abs=1e-5)


def test_a_summed_loss_accumulates_as_it_is(problem):
    facts = answer(
        train(network(), *problem, lambda o, t: functional.cross_entropy(o, t, reduction="sum"), rows=8, steps=4), "accumulation"
    )
    assert facts["undivided"] == pytest.approx(1.0, abs=1e-6)


def test_the_gradient_of_parts_is_that_of_a_plain_loop(problem):
    replay = Replay(train(network(), *problem, rows=8, steps=4))
    model = replay.start()[0].double()
    inputs, targets = replay.batches[0].program.constants[0].double(), replay.batches[0].program.constants[1]
    for part in range(4):
        functional.cross_entropy(model(inputs[2 * part : 2 * part + 2]), targets[2 * part : 2 * part + 2]).backward()
    slow = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    fast = accumulation.gradient(replay, [replay.start()[0].double()], replay.batches[0], list(torch.arange(8).split(2)))
    assert torch.allclose(slow, fast, atol=1e-12)


def test_half_precision_overflows_where_values_are_large_and_underflows_where_gradients_are_small(problem):
    inputs, labels = problem
    plain = answer(train(network(), inputs, labels, steps=4), "precision")
    large = answer(train(network(), inputs * 1e5, labels, steps=4), "precision")
    small = answer(train(network(), inputs, labels, lambda o, t: 1e-7 * functional.cross_entropy(o, t), steps=4), "precision")
    assert plain["float32"]["error"] < 1e-5
    assert plain["float32"]["error"] < plain["float16"]["error"] < plain["bfloat16"]["error"] < 0.1
    assert not large["float16"]["finite"]
    assert large["bfloat16"]["finite"]
    assert small["float16"]["lost"] > 0.9
    assert small["float16_scaled"]["lost"] < 0.5
    assert small["bfloat16"]["lost"] < 0.1


def test_gradients_shrink_on_the_way_down_through_sigmoids_and_not_through_orthogonal_layers(problem):
    torch.manual_seed(0)
    sigmoids = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(8)), nn.Linear(8, 4))
    even = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(8)), nn.Linear(8, 4))
    for layer in list(even)[:-1]:
        nn.init.orthogonal_(layer.weight)
    assert answer(train(sigmoids, *problem, steps=4), "flow")["slope"] < 0.4
    assert answer(train(even, *problem, steps=4), "flow")["slope"] == pytest.approx(1.0, abs=0.2)


def test_what_gets_no_gradient_and_units_that_are_alike_are_named(problem):
    model = network()
    nn.init.constant_(model[3].weight, 0.1)
    model[0].unused = nn.Parameter(torch.ones(3))
    facts = answer(train(model, *problem, steps=4), "flow")
    assert facts["without"] == ["0.unused"]
    assert facts["alike"] == ["3.weight"]


def test_the_usable_rates_hold_a_good_one_and_end_below_a_bad_one(problem):
    facts = answer(train(network(), *problem, steps=40, rows=64), "rate_range", {"optimizer": "SGD", "settings": {"lr": 1e-3}})
    assert facts["low"] < 0.5 < facts["high"] * 5
    assert facts["own"] == 1e-3
    assert all(math.isfinite(loss) for loss in facts["losses"])


def test_the_look_at_the_data(problem):
    inputs, labels = problem
    inputs = torch.cat([inputs, torch.zeros(2000, 1), labels[:, None].float()], 1)
    held = train(network(features=10), inputs, labels, steps=40)
    facts = answer(held, "look")
    assert facts["inputs"][0]["shape"] == [32, 10]
    assert (facts["constant"], facts["alone"]) == (1, [9])
    assert facts["neighbour"] > facts["chance"] + 10 * facts["error"]
    assert abs(facts["shifted"] - facts["chance"]) < 5 * facts["error"]
    rows = torch.cat([batch.program.constants[0] for batch in held.batches])
    assert facts["distinct"] == pytest.approx(len(torch.unique(rows, dim=0)) / len(rows))
    assert facts["conflicts"] == 0.0
    values = torch.cat([batch.program.constants[0] for batch in held.batches])
    first = facts["inputs"][0]
    assert first["histogram"] == torch.histc(values.double(), 30, first["min"], first["max"]).int().tolist()


def test_targets_that_are_numbers_are_counted_between_their_ends(problem):
    inputs, _ = problem
    held = train(network(classes=1), inputs, inputs[:, :1], functional.mse_loss)
    targets = answer(held, "look")["targets"]
    assert targets["min"] < -1 < 1 < targets["max"]
    assert sum(targets["histogram"]) == sum(batch.rows for batch in held.batches)


@pytest.mark.parametrize("value", [0.0, 7.0, 1e300])
def test_values_that_are_all_alike_are_counted_too(value):
    from lossdoctor.experiments.look import _histogram

    assert sum(_histogram(np.full(5, value))) == 5
    assert sum(_histogram(np.array([value, np.nextafter(value, np.inf)]))) == 2
