"""Rate range test (Smith, 2017): raise the rate evenly from step to step on captured batches; between which rates does the loss fall?"""

from __future__ import annotations

import math
from typing import Any

import torch

from lossdoctor.experiments.replay import Deadline, Replay
from lossdoctor.experiments.training import optimizer_for

STEPS = 100
LOWEST, HIGHEST = 1e-7, 10.0
_SMOOTH = 0.9
_GONE = 4.0  # times the lowest smoothed loss, above which the test ends (as in fastai's)


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the loss over the rate, and the interval in which it falls.

    Args:
        parameters: `optimizer` and `settings` with the run's own rate.

    Returns:
        `rates` and `losses` (smoothed); `steepest` (rate at which the loss falls fastest), `low` and `high` (from where a tenth of
        the fall is done to where nine tenths are), None where it does not fall; `own` rate.
    """
    own = float(parameters["settings"]["lr"])
    models = replay.start()
    optimizer = optimizer_for(models, parameters, 1.0)
    rates, losses = list[float](), list[float]()
    mean = 0.0
    torch.manual_seed(0)
    for step in range(STEPS):
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = replay.loss(models, replay.batches[step % len(replay.batches)])
        mean = _SMOOTH * mean + (1 - _SMOOTH) * float(loss.detach())
        smoothed = mean / (1 - _SMOOTH ** (step + 1))
        if not math.isfinite(smoothed) or deadline.over or (losses and smoothed > _GONE * max(min(losses), 1e-12) > 0):
            break
        rates.append(rate)
        losses.append(smoothed)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {"rates": rates, "losses": losses, "own": own, **interval(rates, losses)}


def interval(rates: list[float], losses: list[float]) -> dict[str, float | None]:
    """Return between which rates the loss falls, and where it falls fastest.

    Example:
        >>> interval([1e-4, 1e-3, 1e-2, 1e-1], [2.0, 1.9, 0.5, 3.0])
        {'low': 0.001, 'high': 0.01, 'steepest': 0.01}
    """
    nothing: dict[str, float | None] = {"low": None, "high": None, "steepest": None}
    if len(losses) < 3:
        return nothing
    bottom = min(range(len(losses)), key=losses.__getitem__)
    start = max(losses[: bottom + 1])
    fall = start - losses[bottom]
    if bottom == 0 or not fall > 0.05 * abs(start):
        return nothing
    low = next(rates[i] for i in range(bottom + 1) if i and losses[i] <= start - 0.05 * fall)
    steepest = min(range(1, bottom + 1), key=lambda i: losses[i] - losses[i - 1])
    return {"low": low, "high": rates[bottom], "steepest": rates[steepest]}
