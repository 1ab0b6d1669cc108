"""Captured runs of small problems."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from lossdoctor.record.capture import Capture, Captures


def train(model, inputs, targets, loss=functional.cross_entropy, *, rate=1e-3, steps=100, rows=32, optimizer=torch.optim.Adam) -> Captures:
    """Train as a script would, with the captures that the seams would take."""
    stepper = optimizer(model.parameters(), lr=rate)
    capture = Capture()
    for _ in range(steps):
        chosen = torch.randint(0, len(inputs), (rows,))
        batch = inputs[chosen]
        capture.forward_began(True, model, (batch,), {})
        output = model(batch)
        capture.forward_ended(output)
        value = loss(output, targets[chosen])
        stepper.zero_grad()
        capture.backward_began(value)
        value.backward()
        stepper.step()
    return capture.held


def network(width=32, features=8, classes=4, dropout=0.0):
    layers = [nn.Linear(features, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)]
    return nn.Sequential(*layers)


@pytest.fixture
def problem():
    """Four classes that a small network can tell apart: inputs (2000, 8) and labels."""
    torch.manual_seed(0)
    inputs = torch.randn(2000, 8)
    teacher = torch.randn(8, 4)
    return inputs, (inputs @ teacher).argmax(1)
