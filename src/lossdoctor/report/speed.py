"""The words for what trials of speed found."""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import words

_LOSSES = {"same": "the same losses", "follow": "losses that follow the control's", "differ": "other losses"}
MOST_LINES = 4


def levers(diagnosis: Diagnosis) -> list[str]:
    """Say what each lever gave, best first; those that were not tried, with the reason, last.

    Example:
        >>> row = {"title": "whole batches", "factor": 2.0, "low": 1.9, "high": 2.1, "pairs": 3, "losses": "same"}
        >>> levers(Diagnosis(vitals={"speed": {"levers": [row]}}))
        ['2 times as fast (1.9 to 2.1): whole batches, with the same losses']
    """
    speed = diagnosis.vitals.get("speed") or {}
    return [_line(row) for row in speed.get("levers", [])]


def combined(diagnosis: Diagnosis) -> str:
    """Say what those that pay gave together."""
    row = (diagnosis.vitals.get("speed") or {}).get("combined")
    return _line(row) if row else ""


def answer(diagnosis: Diagnosis) -> str:
    """Say what to do."""
    speed = diagnosis.vitals.get("speed")
    if speed is None:
        return ""
    paying = [row for row in speed["levers"] if row.get("pays")]
    if not paying:
        return "no lever that was tried pays"
    safe = [row for row in paying if not row.get("changes_results")] or paying
    return "; ".join(words.clean(row["advice"]) for row in safe)


def lines(diagnosis: Diagnosis) -> list[str]:
    """Say which lines of the script the time went to."""
    found = (diagnosis.vitals.get("speed") or {}).get("lines", [])
    return [words.clean(f"{words.percent(share)} at {_short(file)}:{line}") for file, line, share in found[:MOST_LINES]]


def waits(diagnosis: Diagnosis) -> list[str]:
    """Say at which lines an accelerator would be waited for."""
    found = (diagnosis.vitals.get("speed") or {}).get("waits", [])
    return [words.clean(f"{_short(file)}:{line} reads a value {count:g} times a step; an accelerator would be waited for") for file, line, count, *_ in found[:MOST_LINES]]  # fmt: skip  # noqa: E501


def _line(row: dict[str, Any]) -> str:
    if row.get("factor") is None:
        return words.clean(f"not tried: {row['title']}: {row.get('refused') or 'no time was left'}")
    span = f" ({row['low']:.2g} to {row['high']:.2g})" if row.get("low") is not None else " (one pair)"
    after = "" if row.get("ceiling") else f", with {_LOSSES.get(row['losses'], 'other losses')}"
    changes = "; it changes results" if row.get("changes_results") else ""
    return words.clean(f"{row['factor']:.3g} times as fast{span}: {row['title']}{after}{changes}")


def _short(file: str) -> str:
    return file.rsplit("/", 1)[-1]
