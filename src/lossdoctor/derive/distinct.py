"""How many different rows a training draws from, estimated from the hashes of sampled batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DistinctRows:
    """Hold what sampled batches say of the number of different rows.

    Args:
        drawn: rows that were hashed.
        seen: different ones among them; the number of different rows is at least this.
        estimate: Chao's lower estimate of the number in the whole training set; None where hardly a row was drawn twice, so
            that nothing but `seen` is known.

    Example:
        >>> DistinctRows(100, 40, 40.0).estimate
        40.0
    """

    drawn: int
    seen: int
    estimate: float | None


def distinct_rows(batches: Iterable[Sequence[str]]) -> DistinctRows:
    """Estimate the number of different rows by capture and recapture.

    Chao's estimator seen + f1 (f1 - 1) / (2 (f2 + 1)), with f1 and f2 the rows drawn once and twice. It asks for
    few assumptions; rows drawn without putting back within an epoch make it too large, never too small.
    Source: Chao 1984, Nonparametric estimation of the number of classes in a population.

    Args:
        batches: the hashes of the rows of each sampled batch.

    Example:
        >>> distinct_rows([["a", "b"], ["b", "a"], ["a", "b"]])
        DistinctRows(drawn=6, seen=2, estimate=2.0)
    """
    counts = Counter(row for batch in batches for row in batch)
    drawn, seen = counts.total(), len(counts)
    often = Counter(counts.values())
    once, twice = often[1], often[2]
    # Half of the rows drawn only once: the estimate's own error is then as large as what it estimates.
    known = seen > 0 and once <= seen / 2
    return DistinctRows(drawn, seen, seen + once * (once - 1) / (2 * (twice + 1)) if known else None)


def share_seen(rows: Sequence[str], known: set[str]) -> float | None:
    """Return the share of rows that are among the known ones; None for no rows.

    Example:
        >>> share_seen(["a", "x"], {"a", "b"})
        0.5
    """
    if not rows:
        return None
    return sum(row in known for row in rows) / len(rows)
