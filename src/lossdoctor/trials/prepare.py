"""What is done in a repetition's process before the first line of the script: seeds, and an edited source in the place of the file."""

from __future__ import annotations

import random
from collections.abc import Mapping
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


def _shifted(original: Any, number: int) -> Any:
    def shifted(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(seed + number if isinstance(seed, int) else seed, *args, **kwargs)

    return shifted
