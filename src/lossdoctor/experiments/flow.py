"""Gradients at the start, before any rate acts: per layer, along the depth, dead and saturated units, units that are alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, without_dropout

MOST_LAYERS = 200
_STEP = 1e-3  # Adam's rate for the size of an update
# Layers whose first axis holds their units; of positions, tables and weights made by hand it may hold anything.
_OF_UNITS = ("Linear", "Conv1d", "Conv2d", "Conv3d", "RNN", "LSTM", "GRU", "MultiheadAttention")
_SHAKE = 0.5  # of a weight's spread, or this much where it has none: enough to change a decision that a gradient does not pass
_UNCHANGED = 1e-6  # relative change of the loss that is rounding
_STEPS = 8  # of Adam, after which units that can part have parted
_TOGETHER = 0.9  # length of the mean direction of alike units: 1 where they move as one, .1 to .5 where they part (measured)


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what reaches each weight at the start.

    Returns:
        `layers`: list of `name`, `kind`, `weight` and `gradient` (norms over the root of their number), `update` (of one step of
        Adam at 1e-3, over the weight); `slope` (factor by which gradients grow from one layer to the one below it);
        `without` and `zero` (names of parameters without a gradient, and with one that is exactly zero); `cut` (those without one that the
        loss depends on all the same) and `cut_elements`, `elements` (of all that can learn); `alike` (layers
        whose units all have the same weights), `together` (those that have them still after some steps of training); `loss`.
    """
    models = replay.start()
    loss = replay.loss(models, replay.batches[0])
    loss.backward()  # type: ignore[no-untyped-call]
    named = [(name, kind, parameter) for model in models for name, kind, parameter in _parameters(model) if parameter.requires_grad]
    layers = [_layer(name, kind, parameter) for name, kind, parameter in named if parameter.dim() > 1][:MOST_LAYERS]
    units = [(name, parameter) for name, kind, parameter in named if parameter.dim() > 1 and kind.endswith(_OF_UNITS)]
    alike = [name for name, parameter in units if _alike(parameter)]
    cut = _cut(replay, [(name, parameter) for name, _, parameter in named if parameter.grad is None], models)
    return {
        "loss": float(loss.detach()),
        "layers": layers,
        "slope": _slope([layer["gradient"] for layer in layers if layer["gradient"]]),
        "without": [name for name, _, parameter in named if parameter.grad is None],
        "zero": [name for name, _, parameter in named if parameter.grad is not None and not bool(parameter.grad.any())],
        "cut": [name for name, _ in cut],
        "cut_elements": sum(parameter.numel() for _, parameter in cut),
        "elements": sum(parameter.numel() for _, _, parameter in named),
        "alike": alike,
        "together": _together(replay, alike, deadline) if alike else [],
    }


def _cut(replay: Replay, without: list[tuple[str, Tensor]], models: list[nn.Module]) -> list[tuple[str, Tensor]]:
    """Return the parameters without a gradient that the loss depends on: they are used, and the way back to them is cut."""
    found = []
    with torch.no_grad(), without_dropout(models):
        before = _value(replay, models)
        for name, parameter in without[:MOST_LAYERS]:
            kept = parameter.clone()
            spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
            torch.manual_seed(1)
            parameter.add_(torch.randn_like(parameter) * _SHAKE * (spread or 1.0))
            if abs(_value(replay, models) - before) > _UNCHANGED * max(abs(before), 1e-6):
                found.append((name, parameter))
            parameter.copy_(kept)
    return found


def _value(replay: Replay, models: list[nn.Module]) -> float:
    torch.manual_seed(0)
    return float(replay.loss(models, replay.batches[0]))


def _together(replay: Replay, alike: list[str], deadline: Deadline) -> list[str]:
    """Return the layers whose units, alike at the start, are alike after some steps: nothing ever tells them apart."""
    models = replay.start()
    named = {name: parameter for model in models for name, _, parameter in _parameters(model)}
    start = {name: named[name].detach().clone() for name in alike}
    optimizer = torch.optim.Adam([parameter for parameter in named.values() if parameter.requires_grad], lr=_STEP)
    with without_dropout(models):
        for step in range(_STEPS):
            if deadline.over:
                return []
            optimizer.zero_grad()
            replay.loss(models, replay.batches[step % len(replay.batches)]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return [name for name in alike if _stays(named[name].detach(), start[name])]


def _stays(parameter: Tensor, start: Tensor) -> bool:
    """Tell whether units moved as one: the mean of their directions is as long as each, or nothing moved at all."""
    moved = (parameter - start).flatten(1).double()
    directions = moved[moved.norm(dim=1) > 0]
    if not len(directions):
        return True
    return len(directions) > 1 and float((directions / directions.norm(dim=1, keepdim=True)).mean(0).norm()) > _TOGETHER


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
