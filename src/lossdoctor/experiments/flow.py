"""Gradients at the start, before any rate acts: per layer, along the depth, dead and saturated units, units that are alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay

MOST_LAYERS = 200
_STEP = 1e-3  # Adam's rate for the size of an update


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what reaches each weight at the start.

    Returns:
        `layers`: list of `name`, `kind`, `weight` and `gradient` (norms over the root of their number), `update` (of one step of
        Adam at 1e-3, over the weight); `slope` (factor by which gradients grow from one layer to the one below it);
        `without` and `zero` (names of parameters without a gradient, and with one that is exactly zero); `alike` (layers
        whose units all have the same weights); `loss`.
    """
    models = replay.start()
    loss = replay.loss(models, replay.batches[0])
    loss.backward()  # type: ignore[no-untyped-call]
    named = [(name, kind, parameter) for model in models for name, kind, parameter in _parameters(model) if parameter.requires_grad]
    layers = [_layer(name, kind, parameter) for name, kind, parameter in named if parameter.dim() > 1][:MOST_LAYERS]
    return {
        "loss": float(loss.detach()),
        "layers": layers,
        "slope": _slope([layer["gradient"] for layer in layers if layer["gradient"]]),
        "without": [name for name, _, parameter in named if parameter.grad is None],
        "zero": [name for name, _, parameter in named if parameter.grad is not None and not bool(parameter.grad.any())],
        "alike": [name for name, _, parameter in named if parameter.dim() > 1 and _alike(parameter)],
    }


def _parameters(model: nn.Module) -> list[tuple[str, str, Tensor]]:
    return [
        (f"{name}.{own}" if name else own, type(part).__name__, parameter)
        for name, part in model.named_modules()
        for own, parameter in part.named_parameters(recurse=False)
    ]


def _layer(name: str, kind: str, parameter: Tensor) -> dict[str, Any]:
    weight = float(parameter.detach().norm()) / parameter.numel() ** 0.5
    gradient = None if parameter.grad is None else float(parameter.grad.norm()) / parameter.numel() ** 0.5
    moved = 0.0 if parameter.grad is None else _STEP * float((parameter.grad != 0).double().mean().sqrt())
    return {"name": name, "kind": kind, "weight": weight, "gradient": gradient, "update": moved / max(weight, 1e-12)}


def _slope(gradients: list[float]) -> float | None:
    """Return the factor from a layer to the one below it, by a straight line through the logarithms."""
    if len(gradients) < 3:
        return None
    heights = torch.tensor(gradients, dtype=torch.float64).clamp_min(1e-300).log()
    depth = torch.arange(len(gradients), dtype=torch.float64)
    depth = depth - depth.mean()
    return float((-(depth * heights).sum() / depth.square().sum()).exp())


def _alike(parameter: Tensor) -> bool:
    flat = parameter.detach().flatten(1)
    return len(flat) > 1 and bool((flat == flat[:1]).all())
