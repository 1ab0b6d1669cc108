"""Turn a rule's strength into a probability, by the table that the bench wrote.

`calibration.json` holds, per slug, a table of pairs [strength, probability], rising in both; between two pairs the
probability is interpolated. A fault without a table is `preview` and its strength stands for its probability.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

FORMAT = 1
PATH = Path(__file__).with_name("calibration.json")

Table = list[list[float]]


@cache
def tables(path: Path = PATH) -> Mapping[str, Table]:
    """Read the tables, by slug; none where the file is missing or of another format."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return dict(stored.get("tables", {})) if stored.get("format") == FORMAT else {}


def probability(slug: str, strength: float) -> float:
    """Return the calibrated probability of a strength.

    Args:
        slug: the fault's slug.
        strength: in [0, 1], as its rule gave it; a value that is not a number counts as 0.

    Example:
        >>> probability("a-fault-without-table", 0.5)
        0.5
    """
    known = float(np.clip(np.nan_to_num(strength, nan=0.0), 0.0, 1.0))
    table = tables().get(slug)
    if not table:
        return known
    strengths, probabilities = zip(*table, strict=True)
    return float(np.interp(known, strengths, probabilities))


def maturity(slug: str) -> str:
    """Return `stable` for a fault that the bench has calibrated, else `preview`.

    Example:
        >>> maturity("a-fault-without-table")
        'preview'
    """
    return "stable" if slug in tables() else "preview"


def calibrate(rows: Iterable[tuple[str, float, bool]]) -> dict[str, Table]:
    """Fit a rising table per fault.

    Args:
        rows: (slug, strength, planted) of every fault on every bench run; strength 0 where the rule said nothing.

    Returns:
        Tables by slug, of the faults that were planted at least once and spared at least once. Each level set of the
        isotonic fit counts one success and one failure more than were seen (Laplace's rule of succession), so that
        five of five do not read as certain.

    Example:
        >>> seen = [("x", 1.0, True)] * 8 + [("x", 0.0, False)] * 8
        >>> calibrate(seen)["x"]
        [[0.0, 0.1], [1.0, 0.9]]
    """
    by_slug: dict[str, list[tuple[float, bool]]] = {}
    for slug, strength, planted in rows:
        by_slug.setdefault(slug, []).append((strength, planted))
    both = {slug: pairs for slug, pairs in by_slug.items() if {True, False} <= {planted for _, planted in pairs}}
    return {slug: _fit(pairs) for slug, pairs in sorted(both.items())}


def _fit(pairs: list[tuple[float, bool]]) -> Table:
    from sklearn.isotonic import IsotonicRegression

    strengths = np.array([round(strength, 3) for strength, _ in pairs])  # the fit cannot tell strengths a rounding apart
    planted = np.array([float(there) for _, there in pairs])
    level = IsotonicRegression(y_min=0.0, y_max=1.0).fit_transform(strengths, planted)
    smooth = {value: (planted[level == value].sum() + 1) / ((level == value).sum() + 2) for value in np.unique(level)}
    rising = dict(zip(smooth, np.maximum.accumulate(list(smooth.values())), strict=True))
    ends = [(float(strength), float(rising[value])) for value in rising for strength in _ends(strengths[level == value])]
    return [[strength, round(chance, 4)] for strength, chance in sorted(set(ends))]


def _ends(strengths: np.ndarray) -> tuple[float, float]:
    return float(strengths.min()), float(strengths.max())


def write(fitted: Mapping[str, Table], path: Path = PATH) -> None:
    """Write the tables to the file that `probability` reads."""
    path.write_text(json.dumps({"format": FORMAT, "tables": fitted}, indent=1) + "\n")
    tables.cache_clear()
