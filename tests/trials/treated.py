"""Treatments in this process, undone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments import apply_one


@contextmanager
def treated(name: str, **parameters: Any) -> Iterator[Hooks]:
    """Apply one treatment within the block."""
    hooks = Hooks()
    try:
        apply_one(hooks, name, parameters)
        yield hooks
    finally:
        hooks.undo()
