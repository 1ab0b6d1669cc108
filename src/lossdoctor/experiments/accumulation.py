"""Does a batch in parts give the gradient of the whole batch? Norm ratio and cosine, with each part's loss divided and not.

A mean over rows must be divided by the number of parts; what is not makes the gradient as many times too large. Batch norm and
losses that are no mean over rows give another direction.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, without_dropout
from lossdoctor.record.capture import Batch

PARTS = 4
_LEAST = 2  # rows of a part


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how the gradient of a batch in parts lies to that of the whole.

    Returns:
        `rows`, `parts`; `divided` and `undivided`: norm of the parts' gradient over that of the whole; `cosine` between both;
        `difference` (of the divided one, relative to the norm of the whole).
    """
    batch = replay.batches[0]
    rows = batch.rows // PARTS
    if rows < _LEAST:
        raise ReplayRefused(f"a batch of {batch.rows} is too small to be cut into {PARTS} parts")
    pieces = list(torch.split(torch.arange(rows * PARTS), rows))
    models = replay.start()
    for model in models:
        model.double()
    with without_dropout(models):
        whole = gradient(replay, models, batch, [torch.arange(rows * PARTS)])
        summed = gradient(replay, models, batch, pieces)
    size = float(whole.norm())
    if not size > 0:
        raise ReplayRefused("the gradient is zero")
    facts: dict[str, Any] = {"rows": rows * PARTS, "parts": PARTS, "undivided": float(summed.norm()) / size}
    facts |= {"divided": facts["undivided"] / PARTS, "cosine": float(whole @ summed / (size * summed.norm()).clamp_min(1e-30))}
    return facts | {"difference": float((summed / PARTS - whole).norm()) / size}


def gradient(replay: Replay, models: list[nn.Module], batch: Batch, pieces: list[Tensor]) -> Tensor:
    """Return the sum of the gradients of some rows' losses, as one vector in double precision."""
    learning = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.grad = None
    for rows in pieces:
        torch.manual_seed(0)
        constants = [each.double() if each.is_floating_point() else each for each in replay.constants(batch, rows)]
        replay.loss_of(models, batch, constants, len(rows)).backward()  # type: ignore[no-untyped-call]
    return torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in learning])
