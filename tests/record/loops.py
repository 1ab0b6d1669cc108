"""Small loops that the tests of the recorder watch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from lossdoctor.core.run import Run
from lossdoctor.core.store import load_run
from lossdoctor.record import arm

Result = TypeVar("Result")


def recorded(out: Path, loop: Callable[[], Result], max_steps: int | None = None) -> tuple[Run, Result]:
    """Run a loop under the recorder, with so much budget that a busy machine changes nothing, and read what was written."""
    recorder = arm(out / "runs", script="loop", budget=100.0, max_steps=max_steps)
    if recorder._observer is not None:
        recorder._observer.budget._credit = 1e9
    try:
        result = loop()
    finally:
        recorder.stop(how="returned", status=0)
    assert recorder.folder is not None, "nothing was recorded"
    run = load_run(recorder.folder)
    assert not run.notes
    return run, result


def batch(rows: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of three features and labels of two classes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.randint(0, 2, (rows,), generator=generator)


def network() -> nn.Sequential:
    """Return a small classifier."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
