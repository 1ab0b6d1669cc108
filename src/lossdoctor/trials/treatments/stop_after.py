"""The end of a repetition: after so many steps."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, steps: int, parts: int = 1) -> None:
    """End the process at the first backward after so many steps; what is validated before that still counts.

    Args:
        steps: of all optimisers together; backwards where none has stepped.
        parts: backwards that make a step, where gradients are accumulated.
    """
    count = {"steps": 0, "backwards": 0}

    def step(optimizer: Any) -> None:
        count["steps"] += 1

    def backward() -> None:
        if (count["steps"] or count["backwards"] // parts) >= steps:
            hooks.finish()
        count["backwards"] += 1

    hooks.after_step(step)
    hooks.around_backward(before=backward)
