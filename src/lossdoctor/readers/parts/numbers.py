"""Turn what people print as a number into a float, and tell a missing value from one that is not a number."""

from __future__ import annotations

import math
import re
from typing import Any

# What stands for "nothing was measured here" (Keras writes NA, pandas an empty field, JSON null).
MISSING = frozenset({"", "na", "n/a", "none", "null", "-", "--", "nil"})
_PLAIN = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_WRAPPED = re.compile(r"(?:tensor|np\.float\d+|float|array)\(\s*([^,)\]]+)[^)]*\)", re.IGNORECASE)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_CLOCK = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
# Suffixes of sizes and durations, as factors to the bare unit (bytes are left as they are: nobody compares them).
_UNITS = {"ms": 1e-3, "us": 1e-6, "min": 60.0, "k": 1e3}
_WITH_UNIT = re.compile(r"([-+]?[\d.,]+(?:[eE][-+]?\d+)?|nan|inf)\s*([%a-zA-Z/]+)", re.IGNORECASE)


def number(value: Any) -> float | None:
    """Read a printed or stored number.

    Args:
        value: text, number, boolean, or anything else.

    Returns:
        The number (nan and inf included), or None where nothing was measured or it is no number.

    Example:
        >>> number("1,234.5"), number("NaN"), number("0,98"), number("NA"), number("tensor(0.5, device='cuda:0')")
        (1234.5, nan, 0.98, None, 0.5)
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _text(value.strip()) if isinstance(value, str) else None


def _text(text: str) -> float | None:
    try:
        return float(text)  # the usual case, nan and inf included
    except ValueError:
        pass
    if len(text) > 64 or text.lower() in MISSING:
        return None
    if match := _WRAPPED.fullmatch(text):
        return _text(match[1])
    if _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    if _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if match := _WITH_UNIT.fullmatch(text):
        return _scaled(match[1], match[2])
    return clock(text)


def _scaled(digits: str, unit: str) -> float | None:
    value = _text(digits)
    return None if value is None else value * _UNITS.get(unit.lower(), 1.0)


def clock(text: str) -> float | None:
    """Read a duration as people print it, in seconds.

    Example:
        >>> clock("1 day, 0:02:00"), clock("00:41"), clock("later")
        (86520.0, 41.0, None)
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400.0 + int(hours or 0) * 3600.0 + int(minutes) * 60.0 + float(seconds)


def plain(text: str) -> float | None:
    """Read a number that must begin and end the text; thousands separators are allowed, units are not."""
    return _text(text) if _PLAIN.fullmatch(text) or text.lower().lstrip("+-") in _NOT_FINITE else None
