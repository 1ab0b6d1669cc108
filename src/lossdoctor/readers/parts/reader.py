"""What a reader is: a format's name, how sure it is of a content, and how it makes tables of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table


@dataclass(frozen=True)
class Reader:
    """Hold a reader.

    Args:
        format: name of the format, for the report.
        knows: how sure the content is of this format, from 0 to 1; it looks at `source.sample`, never at the name alone.
        read: makes the tables, one per run that the format itself keeps apart.

    Example:
        >>> Reader("nothing", lambda source: 0.0, lambda source: []).format
        'nothing'
    """

    format: str
    knows: Callable[[Source], float]
    read: Callable[[Source], list[Table]]


@cache
def readers() -> tuple[Reader, ...]:
    """Load every reader of the folder."""
    package = importlib.import_module("lossdoctor.readers")
    found: list[Reader] = []
    for module_info in pkgutil.iter_modules(package.__path__, "lossdoctor.readers."):
        if not module_info.ispkg:
            found += getattr(importlib.import_module(module_info.name), "READERS", ())
    return tuple(found)


def choose(source: Source) -> list[Reader]:
    """Return the readers that may know the content, surest first."""
    sure = [(reader.knows(source), reader) for reader in readers()]
    return [reader for certainty, reader in sorted(sure, key=lambda pair: -pair[0]) if certainty > 0]
