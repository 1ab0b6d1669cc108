"""Do batch norm's running statistics fit? The trained model's loss with them, with those of the batch, and with fresh ones."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused

_BATCHES = 20
_LEAST_ROWS = 2


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the loss on captured batches, dropout off, by the statistics that batch norm uses.

    Returns:
        `layers` (batch norms that were in training mode), `rows` (of a batch, the median), `momentum` (smallest of the layers');
        `running`, `own` (of the batch) and `fresh` (gathered anew over the batches): the mean loss with each.
    """
    batches = [batch for batch in replay.batches if batch.rows >= _LEAST_ROWS][-_BATCHES:]
    models = replay.now()
    layers = _layers(replay, models)
    if not layers or not batches:
        raise ReplayRefused("no batch norm keeps running statistics in training")
    for model in models:
        model.eval()
    facts: dict[str, Any] = {"layers": len(layers), "rows": statistics.median(batch.rows for batch in batches)}
    facts["momentum"] = min((layer.momentum for layer in layers if layer.momentum is not None), default=None)
    with torch.no_grad():
        facts["running"] = statistics.fmean(float(replay.loss(models, batch)) for batch in batches)
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
            layer.momentum = None  # the mean of all that follows
        facts["own"] = statistics.fmean(float(replay.loss(models, batch)) for batch in batches)
        for layer in layers:
            layer.eval()
        facts["fresh"] = statistics.fmean(float(replay.loss(models, batch)) for batch in batches)
    return facts


def _layers(replay: Replay, models: list[nn.Module]) -> list[Any]:
    """Return the batch norms with running statistics that were in training mode as the script trained."""
    modes = [replay.captures.training[number] for number in replay.batches[0].modules]
    return [
        part
        for model, mode in zip(models, modes, strict=True)
        for name, part in model.named_modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None and mode.get(name, False)
    ]
