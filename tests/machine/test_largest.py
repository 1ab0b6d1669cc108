"""The largest batch under an imposed limit, against trying every size in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lossdoctor.machine.largest import largest

SCRIPT = """
import sys
import torch
from torch import nn
from lossdoctor.machine.largest import largest, limited, private_bytes, ran_out
from lossdoctor.machine.memory import Growth, follow
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))

def step(rows):
    model.zero_grad()
    nn.functional.cross_entropy(model(torch.ones(rows, 256)), torch.zeros(rows, dtype=torch.long)).backward()

def fits(rows):
    try:
        step(rows)
    except (RuntimeError, MemoryError) as error:
        assert ran_out(error), error
        return False
    return True

growth = Growth.through((64, follow([model], lambda: step(64))), (128, follow([model], lambda: step(128))))
limit = private_bytes() + (96 << 20)
with limited(limit):
    guess = growth.most(limit - private_bytes())
    if sys.argv[1] == "quick":
        print(largest(fits, guess), guess)
    else:
        low, high = 1, 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        print(low)
"""


def said(way: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, check=True, timeout=200)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_found_within_three_per_cent_of_the_true_one() -> None:
    (found, _), (true,) = said("quick"), said("slow")
    assert found == pytest.approx(true, rel=0.03)


@pytest.mark.parametrize("true", [0, 1, 2, 7, 100, 4097, 123_456])
@pytest.mark.parametrize("guess", [1, 64, 100_000])
def test_any_true_size_is_found_from_any_guess(true: int, guess: int) -> None:
    tried: list[int] = []

    def fits(rows: int) -> bool:
        tried.append(rows)
        return rows <= true

    found = largest(fits, guess)
    assert found <= true
    assert true - found <= max(1, 0.03 * true)
    assert len(tried) < 30
