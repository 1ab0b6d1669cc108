"""Train on captured batches as the script did, with one thing changed: the rate, or some rows left out of the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused


@dataclass
class Course:
    """Hold what happened: the training loss of each step and, now and then, the loss on rows left out.

    Args:
        losses: per step.
        unseen: pairs (step, loss).
    """

    losses: list[float] = field(default_factory=list)
    unseen: list[tuple[int, float]] = field(default_factory=list)


def optimizer_for(models: list[nn.Module], parameters: dict[str, Any], factor: float) -> torch.optim.Optimizer:
    """Build an optimiser like the script's on other models.

    Args:
        parameters: `optimizer` (class name in torch.optim) and `settings` of its first group, as recorded.
        factor: what the rate is multiplied by.

    Raises:
        ReplayRefused: the class is not torch's own.
    """
    kind = getattr(torch.optim, str(parameters.get("optimizer", "")), None)
    if kind is None or kind is torch.optim.LBFGS:
        raise ReplayRefused(f"the optimiser {parameters.get('optimizer')!r} cannot be rebuilt")
    settings = dict(parameters.get("settings", {}))
    settings["lr"] = float(settings.get("lr", 1e-3)) * factor
    accepted = {name: value for name, value in settings.items() if name in kind.__init__.__code__.co_varnames and name != "params"}
    moved = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    return kind(moved, **accepted)  # type: ignore[no-any-return]


def train(
    replay: Replay,
    models: list[nn.Module],
    optimizer: torch.optim.Optimizer,
    order: list[int],
    deadline: Deadline,
    clip: float | None = None,
) -> Course:
    """Step through captured batches in an order; stops at the deadline or at a loss that is not finite."""
    course = Course()
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number in order:
        optimizer.zero_grad()
        loss = replay.loss(models, replay.batches[number])
        course.losses.append(float(loss.detach()))
        if not math.isfinite(course.losses[-1]) or deadline.over:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(held, clip)
        optimizer.step()
    return course
