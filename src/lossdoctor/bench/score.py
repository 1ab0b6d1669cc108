"""Turn outcomes into figures: the table of planted against verdict, shares with intervals, false alarms, misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

from lossdoctor.bench.matrix import Outcome
from lossdoctor.core.diagnosis import HEALTHY

SCHEMA = "lossdoctor/bench/1"


@dataclass(frozen=True)
class Share:
    """Hold how many of some rows were named, with the interval of the share.

    Example:
        >>> str(Share.of(9, 10))
        '9/10 (60-98 %)'
    """

    named: int
    rows: int
    low: float
    high: float

    @classmethod
    def of(cls, named: int, rows: int) -> Share:
        """Work out the 95 % Wilson interval; it is [0, 1] where there are no rows."""
        if rows == 0:
            return cls(0, 0, 0.0, 1.0)
        interval = binomtest(named, rows).proportion_ci(confidence_level=0.95, method="wilson")
        return cls(named, rows, float(interval.low), float(interval.high))

    def __str__(self) -> str:
        return f"{self.named}/{self.rows} ({100 * self.low:.0f}-{100 * self.high:.0f} %)"


def share(outcomes: Iterable[Outcome]) -> Share:
    """Return the share of outcomes whose verdict names what was planted."""
    named = [outcome.named for outcome in outcomes]
    return Share.of(sum(named), len(named))


def by_condition(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Group outcomes by what was planted and at which level, in the order in which they come."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.row.planted, outcome.row.level), []).append(outcome)
    return groups


def confusion(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """Count the verdicts of each planted condition."""
    table: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        table.setdefault(outcome.row.planted, Counter())[outcome.verdict] += 1
    return table


def misses(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the planted rows whose verdict is another."""
    return [outcome for outcome in outcomes if outcome.row.planted != HEALTHY and not outcome.named]


def alarms(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the healthy rows of which an error or a warning was said, or that gave no report."""
    return [outcome for outcome in outcomes if outcome.row.planted == HEALTHY and (not outcome.named or _loud(outcome))]


def _loud(outcome: Outcome) -> bool:
    return any(severity != "advice" for _, severity, _ in outcome.said)


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return outcomes and figures as one JSON value."""
    recipes = dict.fromkeys(outcome.row.recipe for outcome in outcomes)
    return {
        "schema": SCHEMA,
        "named": _share_json([outcome for outcome in outcomes if outcome.row.planted != HEALTHY]),
        "false_alarms": {"rows": sum(outcome.row.planted == HEALTHY for outcome in outcomes), "alarms": len(alarms(outcomes))},
        "recipes": {name: _recipe_json([outcome for outcome in outcomes if outcome.row.recipe == name]) for name in recipes},
        "table": {planted: dict(counts) for planted, counts in confusion(outcomes).items()},
        "rows": [outcome.as_dict() for outcome in outcomes],
    }


def _recipe_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [{"planted": planted, "level": level} | _share_json(group) for (planted, level), group in by_condition(outcomes).items()]


def _share_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    figure = share(outcomes)
    return {"named": figure.named, "rows": figure.rows, "low": round(figure.low, 4), "high": round(figure.high, 4)}
