"""Train again from the start on the captured batches, with the rate that gives an update ratio of 0.01, beside the run's own rate.

Dividing or multiplying by ten proves little when a rate is off by thousands; the update ratio tells how far (field guide). Where
that rate gets no lower, a tenth of it is tried: under plain gradient descent a first step of 0.01 can throw a network far off.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from lossdoctor.experiments.replay import Deadline, Replay
from lossdoctor.experiments.training import optimizer_for, train

STEPS = 150  # enough for both ends on all problems of the field guide's trial
LOWER = 0.9  # of the own rate's end: less is no gain (starting value)
# Update over weight of the first step: .016-.041 healthy, 34-81 too high, 1e-5 too low (field guide).
HEALTHY_RATIO, LOWER_RATIO = 0.01, 0.001


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how the loss goes under the own rate and under one that moves the weights by 1 %.

    Args:
        parameters: `optimizer`, `settings`, and optionally `clip`.

    Returns:
        `rate`, `first_ratio` (median update ratio of the own first step), `factor`, `other_rate`, `own_losses` and
        `other_losses` (thinned), `own_end` and `other_end` (median of the last tenth), `start`.
    """
    started, given = deadline.clock(), deadline.left
    order = [step % len(replay.batches) for step in range(STEPS)]
    ratio = _first_ratio(replay, parameters)
    factor = HEALTHY_RATIO / ratio if ratio > 0 and math.isfinite(ratio) else 1.0
    clip = parameters.get("clip")

    def course(scale: float, share: float) -> list[float]:
        models = replay.start()
        until = deadline.within(started + share * given - deadline.clock())
        return train(replay, models, optimizer_for(models, parameters, scale), order, until, clip).losses

    own, other = course(1.0, 1 / 3), course(factor, 2 / 3)
    if factor != 1.0 and not _end(other) < LOWER * _end(own):
        lower = course(factor * LOWER_RATIO / HEALTHY_RATIO, 1.0)
        if not _end(other) <= _end(lower):
            factor, other = factor * LOWER_RATIO / HEALTHY_RATIO, lower
    rate = float(parameters["settings"]["lr"])
    facts: dict[str, Any] = {"rate": rate, "first_ratio": ratio, "factor": factor, "other_rate": rate * factor, "start": own[0]}
    facts |= {"own_end": _end(own), "other_end": _end(other), "steps": min(len(own), len(other))}
    return facts | {"own_losses": own[:: max(1, len(own) // 50)], "other_losses": other[:: max(1, len(other) // 50)]}


def _first_ratio(replay: Replay, parameters: dict[str, Any]) -> float:
    """Return the median over weight tensors of the first step's change over the weight."""
    models = replay.start()
    optimizer = optimizer_for(models, parameters, 1.0)
    weights = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad and parameter.dim() > 1]
    before = [weight.detach().clone() for weight in weights]
    replay.loss(models, replay.batches[0]).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    with torch.no_grad():
        ratios = [float((weight - old).norm() / old.norm().clamp_min(1e-12)) for weight, old in zip(weights, before, strict=True)]
    return statistics.median(ratios) if ratios else math.nan


def _end(losses: list[float]) -> float:
    return statistics.median(losses[-max(1, len(losses) // 10) :])
