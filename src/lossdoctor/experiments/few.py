"""Memorise where steps are dear: four short examples, one rate, as many steps as the time allows."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, TimeOver, without_dropout
from lossdoctor.record.capture import Batch, inputs

FEW, FEW_STEPS, MOST_STEPS = 4, 10, 300  # examples; steps at least, whatever time they take, and at most
FEW_RATE = 1e-3  # suits large networks too
SHORT = 32  # positions that are kept of a sequence


def memorise_few(replay: Replay, deadline: Deadline, passed: float) -> dict[str, Any]:
    """Memorise four short examples at one rate, as many steps as the time allows; what did not get there says nothing.

    Args:
        passed: loss over the first at which they count as memorised.

    Returns:
        As `memorise.measure`, without fresh starts.

    Raises:
        ReplayRefused: they were not memorised in time.
    """
    batch = replay.batches[0]
    rows = torch.arange(min(FEW, batch.rows))
    models = replay.start()
    optimizer = torch.optim.Adam([each for model in models for each in model.parameters() if each.requires_grad], lr=FEW_RATE)
    losses: list[float] = []
    begun = time.monotonic()
    with suppress(TimeOver), without_dropout(models):
        constants = _shortened(replay, models, batch, rows)
        while len(losses) < FEW_STEPS or not deadline.over:
            optimizer.zero_grad()
            loss = replay.loss_of(models, batch, constants, len(rows))
            losses.append(float(loss.detach()))
            if losses[-1] < passed * abs(losses[0]) or not math.isfinite(losses[-1]) or len(losses) > MOST_STEPS:
                break
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    first = abs(losses[0]) if losses else 1.0
    own = min((each for each in losses if math.isfinite(each)), default=first) / (first or 1.0)
    if not own < passed:
        took = time.monotonic() - begun
        raise ReplayRefused(
            f"{len(losses)} steps of {len(rows)} examples took {took:.0f} s and brought the loss to {own:.2f} of the first; "
            "`lossdoctor check --workup-seconds 600` gives it more time"
        )
    return {"rows": len(rows), "guess": first, "own": own, "steps": len(losses), "by_rate": {f"{FEW_RATE:g}": own}, "kind": None}


def _shortened(replay: Replay, models: list[nn.Module], batch: Batch, rows: Tensor) -> list[Tensor]:
    """Return the constants of some rows with their sequences cut; as they are where the model does not take them so."""
    constants = replay.constants(batch, rows)
    length = next((int(each.shape[1]) for each in inputs(batch) if each.dim() == 2 and not each.is_floating_point()), 0)
    if length <= SHORT:
        return constants
    cut = [_cut(each, len(rows), length) for each in constants]
    try:
        with torch.no_grad():
            value = float(replay.loss_of(models, batch, cut, len(rows)))
    except (RuntimeError, IndexError, ValueError):
        return constants
    return cut if math.isfinite(value) else constants


def _cut(tensor: Tensor, rows: int, length: int) -> Tensor:
    """Cut what has a place for each position, flattened or not."""
    if tensor.dim() > 1 and tensor.shape[:2] == (rows, length):
        return tensor[:, :SHORT]
    return tensor.reshape(rows, length)[:, :SHORT].flatten() if tensor.dim() == 1 and len(tensor) == rows * length else tensor
