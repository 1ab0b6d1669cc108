"""Another setting of the optimisers: no weight decay, another epsilon, another momentum."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, option: str, value: float) -> None:
    """Set an option of every group that has it, before each step.

    Args:
        option: as torch calls it, such as `weight_decay` or `eps`.
        value: what it becomes.
    """

    def before(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            if option in group and group[option] != value:
                hooks.note("set_option")
                group[option] = value

    hooks.before_step(before)
