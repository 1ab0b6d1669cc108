"""Learning that ends after some steps, while the script goes on: what early stopping would have kept."""

from __future__ import annotations

from typing import Any

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks, steps: int) -> None:
    """Take the gradients away before each later step, so that nothing is moved any more.

    Args:
        steps: of all optimisers together, after which nothing is learned.
    """
    taken = [0]

    def before(optimizer: Any) -> None:
        taken[0] += 1
        if taken[0] > steps:
            hooks.note("stop_early")
            for parameter in held(optimizer):
                parameter.grad = None

    hooks.before_step(before)
