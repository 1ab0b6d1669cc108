"""What is said of a batch agrees with plain arithmetic on all of its elements."""

import json
import math
from collections import UserDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from odd_tensors import ODD
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from lossdoctor.record.probes.batch import MOST_ELEMENTS, describe_inputs, describe_target, feature_axis, find_tensors


def describe(tensor):
    (fields,) = describe_inputs((tensor,), {})
    return fields


def slow(tensor, axis):
    """The obvious twin: every element, one column after the other."""
    values = np.asarray(tensor, dtype=np.float64)
    columns = [column.ravel() for column in np.moveaxis(values, axis, 0)]
    kept = [column[np.isfinite(column)] for column in columns]
    every = np.concatenate(kept)
    return {
        "finite": len(every) / values.size,
        "mean": every.mean(),
        "std": every.std(),
        "min": every.min(),
        "max": every.max(),
        "feature_means": [column.mean() for column in kept],
        "feature_stds": [column.std() for column in kept],
        "constant_features": sum(len(column) > 1 and column.min() == column.max() for column in kept),
        "feature_std_max": max(column.std() for column in kept),
    }


TABLE = torch.randn(40, 6) * torch.tensor([1, 10, 0.1, 1, 1, 1000]) + torch.tensor([0, 3, 0, 0, 500, 0])
TABLE[:, 3] = 7
HOLES = TABLE.clone()
HOLES[3, 0], HOLES[4, 1], HOLES[5, 1] = math.nan, math.inf, -math.inf


@pytest.mark.parametrize(
    ("tensor", "axis"),
    [(TABLE, 1), (HOLES, 1), (TABLE.double(), 1), (TABLE.half(), 1), (torch.rand(5, 3, 8, 9), 1), (torch.rand(5, 8, 9, 3), 3),
     (torch.rand(6, 20, 4), 2), (torch.rand(6, 2, 20), 1), (torch.rand(2, 3, 4, 5, 6), 1)],
)  # fmt: skip
def test_statistics_agree_with_the_slow_twin(tensor, axis):
    fields = describe(tensor)
    assert fields["feature_axis"] == axis
    assert fields["features"] == tensor.shape[axis]
    for name, expected in slow(tensor, axis).items():
        assert fields[name] == pytest.approx(expected, rel=1e-6, abs=1e-9), name


def test_columns_of_very_different_size_show_in_the_extremes():
    fields = describe(TABLE)
    assert fields["feature_std_max"] / fields["feature_std_min"] > 5_000
    assert fields["feature_offset_max"] > 300


def test_a_large_batch_is_sampled_without_bias():
    images = torch.rand(32, 3, 128, 128) + torch.linspace(0, 1, 128)
    assert images.numel() > 10 * MOST_ELEMENTS
    fields = describe(images)
    assert fields["mean"] == pytest.approx(images.mean().item(), abs=0.02)
    assert fields["std"] == pytest.approx(images.std().item(), rel=0.03)
    assert fields["feature_means"] == pytest.approx(images.mean((0, 2, 3)).tolist(), abs=0.02)


def test_many_columns_are_counted_and_some_of_them_written_down():
    fields = describe(torch.randn(20, 5000))
    assert fields["features"] == 5000
    assert len(fields["feature_means"]) == 64


def test_whole_numbers_have_no_features_to_scale():
    fields = describe(torch.randint(0, 30_000, (8, 50)))
    assert fields["integer"] is True
    assert fields["feature_means"] is None
    assert fields["max"] > 10_000


def test_tensors_are_found_in_nested_values_up_to_four():
    @dataclass
    class Batch:
        x: torch.Tensor
        note: str

    class Graph:
        def __init__(self):
            self.edges = torch.zeros(7)

    pair = namedtuple("pair", "first second")
    values = (Batch(torch.zeros(1), "n"), pair(torch.zeros(2), 5), UserDict(a=torch.zeros(3)), [None, {"b": torch.zeros(4)}], Graph())
    assert [len(tensor) for tensor in find_tensors(values)] == [1, 2, 3, 4, 7]
    assert [fields["shape"] for fields in describe_inputs(values, {})] == [[1], [2], [3], [4]]
    assert [fields["shape"] for fields in describe_inputs((), {"ids": torch.zeros(2, 3), "labels": None})] == [[2, 3]]


def test_a_value_that_holds_itself_ends():
    loop = []
    loop.append(loop)
    assert list(find_tensors(loop)) == []


def with_sentinel(value, share=0.1):
    table = torch.randn(200, 5)
    table[:: round(1 / share), 2] = value
    return table


@pytest.mark.parametrize("value", [-999.0, 9999.0, 1e20, -1e30])
def test_a_sentinel_is_named_with_its_share(value):
    fields = describe(with_sentinel(value))
    assert fields["sentinel"] == pytest.approx(value)
    assert fields["sentinel_share"] == pytest.approx(0.1 / 5)


@pytest.mark.parametrize(
    "table",
    [
        torch.randn(200, 5),
        TABLE,
        torch.eye(100),
        torch.rand(100, 20).round(),
        torch.relu(torch.randn(100, 20)),
        torch.cat([torch.randn(200, 4), torch.full((200, 1), 2020.0)], 1),
        torch.distributions.StudentT(2.0).sample((500, 4)),
        torch.exp(3 * torch.randn(500, 4)),
        torch.randint(0, 256, (20, 3, 8, 8)).float(),
        torch.tensor(load_digits().data[:1000]).float(),
        torch.tensor(scale(load_digits().data[:128])).float(),
        torch.tensor(load_digits().data[40:48] / 16).float(),
        torch.tensor([0.0] * 100 + [0.01, 0.02, 0.01] + [1.0] * 3)[:, None].repeat(1, 2),
    ],
    ids=[
        "noise",
        "unscaled",
        "one-hot",
        "binary",
        "half-zeros",
        "constant",
        "heavy-tails",
        "skewed",
        "bytes",
        "digits",
        "scaled-digits",
        "few-digits",
        "rare-values",
    ],
)
def test_ordinary_extremes_are_no_sentinel(table):
    assert describe(table)["sentinel_share"] == 0


def test_classes_of_a_target_are_counted():
    assert describe_target(torch.tensor([3, 0, 3, 3]))["class_counts"] == [1, 3]
    assert describe_target(torch.tensor([3, 0, 3, 3]))["class_values"] == [0, 3]
    assert describe_target(torch.tensor([1.0, 0.0, 1.0]))["class_counts"] == [1, 2]
    assert describe_target(torch.tensor([True, False]))["class_values"] == [0, 1]


def test_a_measured_target_has_no_classes():
    assert describe_target(torch.tensor([0.5, 1.0, 2.0]))["class_counts"] is None
    assert describe_target(torch.arange(100.0))["class_counts"] is None
    assert describe_target(torch.arange(5000))["class_counts"] is None


def test_what_is_no_tensor_has_no_description():
    assert describe_target([1, 2]) is None
    assert describe_target(None) is None
    assert describe_inputs((), {}) == []


@pytest.mark.parametrize("kind", ODD)
def test_every_kind_of_tensor_is_survived(kind):
    json.dumps(describe_inputs((ODD[kind],), {}))
    json.dumps(describe_target(ODD[kind]))
    assert describe(ODD[kind])["dtype"]


def test_a_tensor_without_values_keeps_shape_and_type():
    assert describe(ODD["meta"])["shape"] == [3, 2]
    assert describe(ODD["meta"])["mean"] is None


def test_all_not_finite_is_survived():
    fields = describe(torch.full((3, 2), math.nan))
    assert fields["finite"] == 0
    assert fields["mean"] is None


def test_feature_axis_of_unusual_shapes():
    assert feature_axis(()) is None
    assert feature_axis((5,)) is None
    assert feature_axis((5, 8, 8)) == 2
    assert feature_axis((2, 3, 4, 5, 6, 7)) == 1


def test_describing_draws_no_random_numbers():
    random = torch.get_rng_state()
    describe_inputs((torch.zeros(300, 300),), {})
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_print_no_warning():
    table = torch.tensor([[1e308, -1e308], [1e308, 5.0], [math.inf, 1e308], [3.0, -1e308]], dtype=torch.float64)
    assert describe(table)["max"] == 1e308
