"""Parts that are frozen the right way, and those that only seem so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.record.loops import recorded
from torch import nn
from torch.nn import functional

from lossdoctor.faults.lop.freeze_wrong import detect


def strength(tmp_path: Path, prepare: Callable[[nn.Module], object]) -> float:
    """Train an encoder and a head that the script calls one after the other."""

    def loop() -> None:
        torch.manual_seed(0)
        encoder, head = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 2)
        prepare(encoder)
        optimizer = torch.optim.SGD([p for p in [*encoder.parameters(), *head.parameters()] if p.requires_grad], lr=0.1)
        x = torch.randn(32, 3)
        y = (x[:, 0] > 0).long()
        for _ in range(30):
            optimizer.zero_grad()
            functional.cross_entropy(head(encoder(x)), y).backward()
            optimizer.step()

    run, _ = recorded(tmp_path, loop)
    found = detect(run.trainings[-1])
    return found.strength if found else 0.0


def by_module(encoder: nn.Module) -> None:
    encoder.requires_grad = False  # type: ignore[assignment]


def by_layer(encoder: nn.Module) -> None:
    for layer in encoder.children():
        by_module(layer)


def thawed_by_module(encoder: nn.Module) -> None:
    encoder.requires_grad_(False)
    encoder.requires_grad = True  # type: ignore[assignment]


def by_parameter(encoder: nn.Module) -> None:
    for parameter in encoder.parameters():
        parameter.requires_grad = False


@pytest.mark.parametrize("prepare", [by_module, by_layer, thawed_by_module])
def test_an_attribute_of_the_module_does_nothing(tmp_path: Path, prepare: Callable[[nn.Module], object]) -> None:
    assert strength(tmp_path, prepare) >= 0.8


@pytest.mark.parametrize("prepare", [by_parameter, lambda encoder: encoder.requires_grad_(False), lambda encoder: None])
def test_frozen_and_free_parts_are_in_order(tmp_path: Path, prepare: Callable[[nn.Module], object]) -> None:
    assert strength(tmp_path, prepare) == 0.0


def test_a_class_that_keeps_a_setting_of_this_name_is_in_order(tmp_path: Path) -> None:
    class Own(nn.Linear):
        def __init__(self) -> None:
            super().__init__(8, 8)
            self.requires_grad = False  # type: ignore[assignment]

    assert strength(tmp_path, lambda encoder: encoder.insert(2, Own())) == 0.0  # type: ignore[operator]
