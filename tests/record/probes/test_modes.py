"""Layers that act otherwise in training count where they belong to a trained part."""

import pytest
from torch import nn

from lossdoctor.record.probes.modes import describe_modes


def counts(model):
    fields = describe_modes(model)
    return fields["sensitive"], fields["sensitive_in_eval"], fields["sensitive_in_train"]


def network():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 2))


def test_train_and_eval_mode():
    assert counts(network()) == (2, 0, 2)
    assert counts(network().eval()) == (2, 2, 0)
    fields = describe_modes(network().eval())
    assert fields["root_training"] is False
    assert fields["kinds"] == fields["kinds_in_eval"] == ["BatchNorm2d", "Dropout"]


def test_a_single_layer_in_eval_mode_is_counted_though_the_root_trains():
    model = network()
    model[1].eval()
    assert counts(model) == (2, 1, 1)
    assert describe_modes(model)["kinds_in_eval"] == ["BatchNorm2d"]


def test_a_frozen_backbone_in_eval_mode_does_not_count():
    backbone = network().requires_grad_(False).eval()
    model = nn.Sequential(backbone, nn.Linear(2, 2), nn.Dropout(0.1))
    assert counts(model) == (1, 0, 1)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)),
        nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)),
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)),
        nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2)),
        nn.LSTM(2, 2, num_layers=1),
        nn.LSTM(2, 2, num_layers=2, dropout=0.0),
        nn.MultiheadAttention(4, 2),
        nn.Linear(2, 2),
        nn.Dropout(0.5),
    ],
)
def test_layers_that_act_alike_in_both_modes_do_not_count(module):
    assert counts(module) == (0, 0, 0)


@pytest.mark.parametrize(
    ("module", "number"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)), 1),
        (nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2, track_running_stats=True)), 1),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), 1),
        (nn.MultiheadAttention(4, 2, dropout=0.1), 1),
        (nn.TransformerEncoderLayer(4, 2, 8), 4),  # three dropouts and the attention
        (nn.Sequential(nn.Linear(2, 2), nn.RReLU()), 1),
        (nn.Sequential(nn.Linear(2, 2), nn.AlphaDropout(0.1)), 1),
        (nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d()), 1),
        (nn.BatchNorm1d(3), 1),
    ],
)
def test_layers_that_act_otherwise_count(module, number):
    assert counts(module) == (number, 0, number)


def test_batch_norm_with_frozen_weights_does_not_count_though_its_parent_trains():
    model = network()
    model[1].requires_grad_(False).eval()
    assert counts(model) == (1, 0, 1)


def test_paths_dropped_by_another_librarys_layer_count():
    class DropPath(nn.Module):
        drop_prob = 0.2

    assert counts(nn.Sequential(nn.Linear(2, 2), DropPath())) == (1, 0, 1)
