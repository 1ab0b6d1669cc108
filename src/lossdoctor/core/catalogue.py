"""The catalogue of faults: where each can be seen, in a watched script, in a log, in a check."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("catalogue.tsv")
_SEEN_IN = "can be seen in: script, log, check"


def seen_in(slug: str, mode: str) -> bool:
    """Tell whether a fault can be seen in a mode: `script`, `log` or `check`; of one that the catalogue lacks, yes.

    Example:
        >>> seen_in("lr-too-high", "check"), seen_in("causal-leak", "check")
        (False, True)
    """
    return mode in _table().get(slug, (mode,))


@cache
def _table() -> dict[str, tuple[str, ...]]:
    with _FILE.open(encoding="utf-8") as stream:
        return {row["slug"]: tuple(row[_SEEN_IN].split(",")) for row in csv.DictReader(stream, delimiter="\t")}
