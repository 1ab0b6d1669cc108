"""A rate that rises over the first steps."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, steps: int) -> None:
    """Scale every optimiser's rate linearly from 0 up to the script's own.

    Args:
        steps: of each optimiser, after which the rate is the script's own.
    """
    taken: dict[int, int] = {}
    own: dict[int, list[Any]] = {}

    def before(optimizer: Any) -> None:
        number = taken[id(optimizer)] = taken.get(id(optimizer), 0) + 1
        own[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        if number < steps:
            hooks.note("warm_up")
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * number / steps

    def after(optimizer: Any) -> None:
        for group, rate in zip(optimizer.param_groups, own.pop(id(optimizer), ()), strict=False):
            group["lr"] = rate

    hooks.before_step(before)
    hooks.after_step(after)
