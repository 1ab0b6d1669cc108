"""Validation passes: which of them ran on rows that were never trained on, and their losses and scores as series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lossdoctor.core.run import Row, Series, Training

SEEN = 0.5  # share of a pass's rows that were trained on, above which it measures training and not validation


def unseen_passes(training: Training) -> list[Row]:
    """Return the passes over the data that are validated most often and were not trained on, in the order of steps.

    Args:
        training: with rows `validation`.

    Raises:
        SignalMissing: where there is no validation pass.

    Example:
        >>> passes = [Row(9, {"rows": 100, "seen": 0.0}), Row(9, {"rows": 500, "seen": 1.0})]
        >>> [row["rows"] for row in unseen_passes(Training(rows={"validation": passes}))]
        [100]
    """
    return _most_frequent([row for row in training.table("validation") if (row.get("seen") or 0.0) < SEEN])


def seen_passes(training: Training) -> list[Row]:
    """Return the passes over rows that were trained on: the training loss in the mode of validation.

    Raises:
        SignalMissing: where there is no validation pass.

    Example:
        >>> seen_passes(Training(rows={"validation": [Row(9, {"rows": 100, "seen": 0.0})]}))
        []
    """
    return _most_frequent([row for row in training.table("validation") if (row.get("seen") or 0.0) >= SEEN])


def _most_frequent(rows: Sequence[Row]) -> list[Row]:
    """Keep the passes of the most frequent size: another size is another data set."""
    sizes = Counter(row.get("rows") for row in rows)
    if not sizes:
        return []
    size = sizes.most_common(1)[0][0]
    return sorted((row for row in rows if row.get("rows") == size), key=lambda row: row.step)


def field_series(rows: Sequence[Row], field: str) -> Series:
    """Return one field of structured rows as a series; rows without it are left out, of equal steps the last counts.

    Example:
        >>> field_series([Row(3, {"loss": 0.5}), Row(6, {"loss": None})], "loss").values.tolist()
        [0.5]
    """
    known = {row.step: float(row[field]) for row in rows if isinstance(row.get(field), int | float)}
    steps = sorted(known)
    return Series.of([known[step] for step in steps], steps)
