"""Gradients reset after each step, as `zero_grad()` in the loop does."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks) -> None:
    """Reset the gradients that an optimiser holds after each of its steps."""

    def after(optimizer: Any) -> None:
        for parameter in held(optimizer):
            if parameter.grad is not None:
                hooks.note("clear_gradients")
            parameter.grad = None

    hooks.after_step(after)
