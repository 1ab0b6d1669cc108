"""What is done in a repetition's process before the first line of the script: seeds, and an edited source in the place of the file."""

from __future__ import annotations

import random
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any


def prepare(number: int | None, edits: Mapping[str, str]) -> None:
    """Seed the interpreter and put edited sources in place.

    Args:
        number: of the trial, or None to leave random numbers alone.
        edits: path to new text; the process is shut off by now, so the user's files keep theirs.
    """
    for path, text in edits.items():
        Path(path).write_text(text, encoding="utf-8")
    if number is not None:
        _shift(number)


def _shift(number: int) -> None:
    """Seed `random` and numpy with the number, and add it to every seed that is set from here on."""
    import numpy as np

    random.seed(number)
    np.random.seed(number)
    for owner, name in ((random, "seed"), (np.random, "seed"), (np.random, "default_rng")):
        setattr(owner, name, _shifted(getattr(owner, name), number))
    # `random.Random` seeds itself by its method, numpy's class does not.
    setattr(np.random, "RandomState", _shifting(np.random.RandomState, number, "__init__", "seed"))  # noqa: B010
    setattr(random, "Random", _shifting(random.Random, number, "seed"))  # noqa: B010


def _shifted(original: Any, number: int) -> Any:
    def shifted(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(_moved(seed, number), *args, **kwargs)

    return shifted


def _shifting(original: Any, number: int, *methods: str) -> Any:
    """Return a class of generators that shift their seeds; generators that exist already count as its own.

    Args:
        original: the class.
        number: that is added.
        methods: those that take a seed.
    """

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    def shifted(name: str) -> Any:
        method = getattr(original, name)
        return lambda self, seed=None, *args, **kwargs: method(self, _moved(seed, number), *args, **kwargs)

    return Kind(original.__name__, (original,), {"__module__": original.__module__, **{name: shifted(name) for name in methods}})


def _moved(seed: Any, number: int) -> Any:
    """Return a seed, or a list of them, with the number added; whatever else seeds a generator stays as it is."""
    if isinstance(seed, Integral):
        return int(seed) + number
    if isinstance(seed, (list, tuple)) and all(isinstance(each, Integral) for each in seed):
        return [int(each) + number for each in seed]
    return seed
