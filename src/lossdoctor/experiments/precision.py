"""One step in float32, bfloat16 and float16, with and without scaling of the loss, beside the same step in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, without_dropout
from lossdoctor.record.capture import Batch

SCALE = 2.0**12  # a scaler begins at 2 ** 16 and halves until nothing overflows; few networks need less than 2 ** 12
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far the gradient of the first step is off in each precision.

    Args:
        parameters: `settings` with the rate.

    Returns:
        By kind (`float32`, `bfloat16`, `float16`, `float16_scaled`): `loss`, `error` (of the gradient, relative to its norm in
        float64), `finite`, `lost` (share of its entries that became zero), or `reason` where the model does not run so;
        `lost_updates`: by kind, share of weights that a step of the rate times the gradient leaves as they are.
    """
    batch = replay.batches[0]
    exact = _gradients(replay, batch, torch.float64, 1.0)
    if isinstance(exact, str) or not exact[1].norm() > 0:
        raise ReplayRefused(exact if isinstance(exact, str) else "the gradient is zero")
    facts: dict[str, Any] = {}
    for name, kind in KINDS.items():
        facts[name] = _compare(_gradients(replay, batch, kind, 1.0), exact[1])
    facts["float16_scaled"] = _compare(_gradients(replay, batch, torch.float16, SCALE), exact[1])
    rate = float((parameters.get("settings") or {}).get("lr", 1e-3))
    weights = torch.cat([each.detach().flatten() for model in replay.start() for each in model.parameters() if each.requires_grad])
    return facts | {"lost_updates": {name: _lost(weights, exact[1], rate, kind) for name, kind in KINDS.items()}}


def _gradients(replay: Replay, batch: Batch, kind: torch.dtype, scale: float) -> tuple[float, Tensor] | str:
    """Return loss and gradient with weights and inputs in a precision, or why there are none."""
    models: list[nn.Module] = [model.to(kind) for model in replay.start()]
    constants = [each.to(kind) if each.is_floating_point() else each for each in replay.constants(batch)]
    try:
        torch.manual_seed(0)
        with without_dropout(models):
            loss = replay.loss_of(models, batch, constants)
            (loss * scale).backward()  # type: ignore[no-untyped-call]
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    learning = [each for model in models for each in model.parameters() if each.requires_grad]
    parts = [(torch.zeros_like(each) if each.grad is None else each.grad).flatten().double() / scale for each in learning]
    return float(loss.detach()), torch.cat(parts)


def _compare(found: tuple[float, Tensor] | str, exact: Tensor) -> dict[str, Any]:
    if isinstance(found, str):
        return {"reason": found}
    loss, gradient = found
    finite = bool(torch.isfinite(gradient).all()) and math.isfinite(loss)
    error = float((gradient - exact).norm() / exact.norm()) if finite else math.inf
    there = exact != 0
    return {"loss": loss, "error": error, "finite": finite, "lost": float((gradient[there] == 0).double().mean())}


def _lost(weights: Tensor, gradient: Tensor, rate: float, kind: torch.dtype) -> float:
    """Return the share of weights with a gradient that plain descent would leave unchanged: the step is under half of their last place."""
    before = weights.to(kind)
    there = gradient != 0
    after = (before.double() - rate * gradient).to(kind)
    return float((after == before)[there].double().mean()) if bool(there.any()) else 0.0
