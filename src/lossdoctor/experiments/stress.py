"""What would the loss do on extreme values? The outputs of the model, then its inputs, are scaled up; then a batch of one, and empty masks.

A loss that takes a logarithm of a probability, or divides by one, is finite at the start and becomes NaN when the model gets
sure of itself. The operation that does it first is named.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.replay import Deadline, Replay
from lossdoctor.experiments.respond import Response, find_break
from lossdoctor.record.capture import Batch, row_constants

SCALES = (10.0, 100.0)
SURE, FARTHEST = 200.0, 1000.0  # exp(-104) is the smallest number of float32; no further than any model goes in training


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what makes the loss, or its gradient, a number no more.

    Returns:
        `first` (the loss as it was); `outputs` and `inputs`: None, or `factor`, `operation` (the first that gave what is not finite),
        `loss` and `gradient` (whether it is the gradient alone); `single` (the loss of one example, or the error); `empty_mask` (the same
        where every mask is empty; None where there is no mask).
    """
    batch = replay.batches[0]
    first = float(replay.loss(replay.start(), batch).detach())
    facts: dict[str, Any] = {"first": first, "outputs": None, "inputs": None}
    facts |= {"single": _single(replay, batch), "empty_mask": _empty(replay, batch)}
    if not math.isfinite(first):
        return facts
    for factor in (*SCALES, _far(replay, batch)):
        facts["outputs"] = facts["outputs"] or _scaled_outputs(replay, batch, factor)
        facts["inputs"] = facts["inputs"] or _scaled_inputs(replay, batch, factor)
    return facts


def _far(replay: Replay, batch: Batch) -> float:
    """Return the factor that brings the largest output to where a probability of float32 is surely 0 or 1."""
    largest = max((float(output.abs().max()) for output in Response(replay, batch).outputs if output.numel()), default=0.0)
    return min(FARTHEST, max(SCALES[-1], SURE / largest)) if largest > 0 else SCALES[-1]


def _scaled_outputs(replay: Replay, batch: Batch, factor: float) -> dict[str, Any] | None:
    return find_break(replay, batch, replay.constants(batch), factor, scaled=True)


def _scaled_inputs(replay: Replay, batch: Batch, factor: float) -> dict[str, Any] | None:
    return find_break(replay, batch, replay.constants(batch, change=lambda values: values * factor), factor, scaled=False)


def _single(replay: Replay, batch: Batch) -> float | str:
    try:
        return float(replay.loss(replay.start(), batch, torch.tensor([0])).detach())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _empty(replay: Replay, batch: Batch) -> float | str | None:
    constants = replay.constants(batch)
    masks = {id(constants[number]) for number in row_constants(batch.program, batch.rows) if _is_mask(constants[number])}
    if not masks:
        return None
    try:
        emptied = [torch.zeros_like(each) if id(each) in masks else each for each in constants]
        return float(replay.loss_of(replay.start(), batch, emptied).detach())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _is_mask(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bool and tensor.dim() > 1
