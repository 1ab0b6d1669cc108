"""Nothing that helps: one random number more is drawn before the first step. The bench tells by it what chance alone moves."""

from __future__ import annotations

from typing import Any

import torch

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Draw one random number before the first step, so that later ones differ."""

    def before(optimizer: Any) -> None:
        if "placebo" not in hooks.acted:
            torch.rand(())
            hooks.note("placebo")

    hooks.before_step(before)
