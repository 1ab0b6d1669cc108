"""Another learning rate: every optimiser's, times a factor."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, factor: float) -> None:
    """Multiply the rate only while the step is taken, whatever the script's schedule makes of it.

    Args:
        factor: the other rate over the script's own.
    """
    own: dict[int, list[Any]] = {}

    def before(optimizer: Any) -> None:
        own[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        hooks.note("scale_rate")
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def after(optimizer: Any) -> None:
        for group, rate in zip(optimizer.param_groups, own.pop(id(optimizer), ()), strict=False):
            group["lr"] = rate

    hooks.before_step(before)
    hooks.after_step(after)
