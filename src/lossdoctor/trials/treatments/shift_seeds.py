"""The trial's number added to every seed that the script sets; the interpreter is seeded with it before (`trials/prepare.py`)."""

from __future__ import annotations

from typing import Any

import torch

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, number: int) -> None:
    """Shift the seeds of torch, those of its generators too; those of `random` and numpy were shifted before the script's first line.

    Args:
        number: of the trial.
    """
    torch.manual_seed(number)

    def make(original: Any) -> Any:
        return lambda seed, *args, **kwargs: original(int(seed) + number, *args, **kwargs)

    for owner in (torch, torch.random, torch.cuda):
        hooks.wrap(owner, "manual_seed", make)
    hooks.wrap(torch.cuda, "manual_seed_all", make)
    hooks.put(torch, "Generator", _generator(torch.Generator, number))


def _generator(original: Any, number: int) -> Any:
    """Return a class of generators that shift their seeds; those that exist already count as its own."""

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc]
        def manual_seed(self, seed: int) -> Any:
            return super().manual_seed(int(seed) + number)

    return Generator
