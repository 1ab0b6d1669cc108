"""No dropout in training."""

from __future__ import annotations

from typing import Any

from torch.nn import functional

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments.evaluation_mode import DROPOUTS


def apply(hooks: Hooks) -> None:
    """Let dropout pass everything through; that inside torch's recurrent layers and attention stays."""

    def make(original: Any) -> Any:
        by_default = "alpha" not in original.__name__

        def dropout(input: Any, p: float = 0.5, training: bool = by_default, *args: Any, **kwargs: Any) -> Any:
            if training and p:
                hooks.note("no_dropout")
            return original(input, p, False, *args, **kwargs)

        return dropout

    for name in DROPOUTS:
        hooks.wrap(functional, name, make)
