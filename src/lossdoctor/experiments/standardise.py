"""One forward each from the start: as it was, with standardised inputs, and freshly initialised. Which of them cures the first loss?"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.replay import Deadline, Replay, described

_STARTS = 5


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the first loss as it was, with each input feature standardised, and from fresh starts.

    Returns:
        `first`, `standardised`, `reinitialised` (median over starts), `both`, `guess` (what guessing gives; None where not known).
    """
    batch = replay.batches[0]
    models = replay.start()
    call = described(replay, models, batch, replay.constants(batch))
    with torch.no_grad():
        first = float(replay.loss(models, batch))
        standardised = float(replay.loss(models, batch, change=standardise))
        fresh = [replay.start(seed) for seed in range(_STARTS)]
        reinitialised = [float(replay.loss(start, batch)) for start in fresh]
        both = [float(replay.loss(start, batch, change=standardise)) for start in fresh]
    guess = (call or {}).get("guess_loss")
    value = (call or {}).get("value")
    scaled = guess * abs(first / value) if guess is not None and value else None
    facts = {
        "first": first,
        "standardised": standardised,
        "reinitialised": statistics.median(reinitialised),
        "both": statistics.median(both),
    }
    return {**facts, "guess": scaled}


def standardise(values: Tensor) -> Tensor:
    """Give each feature (last axis of a table, channel of anything larger) mean 0 and standard deviation 1 over the batch.

    Example:
        >>> standardise(torch.tensor([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]
    """
    axes = (0, *range(2, values.dim())) if values.dim() > 2 else (0,)
    mean = values.mean(axes, keepdim=True)
    deviation = values.std(axes, keepdim=True, unbiased=False)
    return (values - mean) / torch.where(deviation > 1e-12, deviation, torch.ones_like(deviation))
