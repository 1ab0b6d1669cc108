"""Validation passes: which of them ran on rows that were never trained on, and their losses and scores as series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import median

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.distinct import distinct_rows

# Share of a pass's rows among the trained rows that were hashed, above which it measures training and not validation: half of
# what a pass over the training data itself would show.
SEEN = 0.5
LEAST_SHARE = 0.02  # below it a few duplicates are enough


def unseen_passes(training: Training) -> list[Row]:
    """Return the passes over the data that are validated most often and were not trained on, in the order of steps.

    Passes of one size are taken for one data set, so that a pass whose rows were not hashed counts with its fellows. Where
    no pass was hashed (a log), all count as unseen.

    Args:
        training: with rows `validation`.

    Raises:
        SignalMissing: where there is no validation pass.

    Example:
        >>> passes = [Row(9, {"rows": 100, "seen": 0.0}), Row(9, {"rows": 500, "seen": 1.0})]
        >>> [row["rows"] for row in unseen_passes(Training(rows={"validation": passes}))]
        [100]
    """
    sizes = _by_size(training.table("validation"))
    limit = seen_limit(training)
    known = [rows for rows in sizes.values() if (share := _share(rows)) is not None and share < limit]
    return _longest(known or [rows for rows in sizes.values() if _share(rows) is None])


def seen_passes(training: Training) -> list[Row]:
    """Return the passes over rows that were trained on: the training loss in the mode of validation.

    Raises:
        SignalMissing: where there is no validation pass.

    Example:
        >>> seen_passes(Training(rows={"validation": [Row(9, {"rows": 100, "seen": 0.0})]}))
        []
    """
    limit = seen_limit(training)
    sizes = _by_size(training.table("validation"))
    return _longest([rows for rows in sizes.values() if (share := _share(rows)) is not None and share >= limit])


def seen_limit(training: Training) -> float:
    """Return the share of trained rows in a pass from which on it counts as a pass over training data.

    Not all rows that are trained on are hashed, so a pass over the training data itself shows only the hashed share.

    Example:
        >>> hashed = [Row(0, {"hashes": [str(i) for i in range(100)]})]
        >>> seen_limit(Training(rows={"row_hashes": hashed}, facts={"loader": {"rows": 1000}}))
        0.05
    """
    found = distinct_rows(row.get("hashes") or () for row in training.rows.get("row_hashes", []))
    whole = (training.fact("loader") or {}).get("rows") or found.estimate
    covered = min(1.0, found.seen / whole) if whole and found.seen else 1.0
    return max(LEAST_SHARE, SEEN * covered)


def _by_size(rows: Iterable[Row]) -> dict[object, list[Row]]:
    sizes: dict[object, list[Row]] = {}
    for row in rows:
        sizes.setdefault(row.get("rows"), []).append(row)
    return sizes


def _share(rows: Sequence[Row]) -> float | None:
    known = [float(row["seen"]) for row in rows if isinstance(row.get("seen"), int | float) and isfinite(row["seen"])]
    return median(known) if known else None


def _longest(groups: Sequence[list[Row]]) -> list[Row]:
    longest: list[Row] = max(groups, key=lambda group: len(group), default=[])
    return sorted(longest, key=lambda row: row.step)


def field_series(rows: Sequence[Row], field: str) -> Series:
    """Return one field of structured rows as a series; rows without it are left out, of equal steps the last counts.

    Example:
        >>> field_series([Row(3, {"loss": 0.5}), Row(6, {"loss": None})], "loss").values.tolist()
        [0.5]
    """
    known = {row.step: float(row[field]) for row in rows if isinstance(row.get(field), int | float)}
    steps = sorted(known)
    return Series.of([known[step] for step in steps], steps)
