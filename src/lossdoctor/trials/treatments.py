"""Treatments: changes to a run that leave its source alone, applied through torch's public optimiser hooks.

A treatment is a value, a name with parameters (`core.fault.Treatment`); `APPLY` interprets it inside the repeated script's
process, once torch is imported. Each takes its parameters by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def apply(treatments: Sequence[Mapping[str, Any]], finish: Callable[[], object]) -> None:
    """Apply treatments to this process, in order.

    Args:
        treatments: each with `name` and `parameters`.
        finish: closes the record; called before the process is ended early.

    Raises:
        KeyError: where a name is not known.
    """
    for treatment in treatments:
        APPLY[treatment["name"]](finish, **treatment.get("parameters", {}))


def scale_rate(finish: Callable[[], object], factor: float) -> None:
    """Multiply every optimiser's rate, whatever the script's schedule makes of it: only while the step is taken."""
    held: dict[int, list[Any]] = {}

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        held[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        for group, rate in zip(optimizer.param_groups, held.pop(id(optimizer), ()), strict=False):
            group["lr"] = rate

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def clear_gradients(finish: Callable[[], object]) -> None:
    """Reset the gradients that an optimiser holds after each of its steps."""

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    register_optimizer_step_post_hook(after)


def clip(finish: Callable[[], object], norm: float) -> None:
    """Clip the norm of all gradients that an optimiser holds before each of its steps (not those of a closure)."""

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        held = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None]
        if held:
            torch.nn.utils.clip_grad_norm_(held, norm)

    register_optimizer_step_pre_hook(before)


def stop_after(finish: Callable[[], object], steps: int) -> None:
    """End the process after so many steps of all optimisers together."""
    taken = [0]

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        taken[0] += 1
        if taken[0] >= steps:
            finish()
            os._exit(0)

    register_optimizer_step_post_hook(after)


APPLY: dict[str, Callable[..., None]] = {
    "scale_rate": scale_rate,
    "clear_gradients": clear_gradients,
    "clip": clip,
    "stop_after": stop_after,
}
