"""Parse columns of printed decimals by array operations: digits times powers of ten, exact as `float` is.

A mantissa of at most 15 digits and a power of ten up to 22 are both exact in a double, so that one division (or product)
rounds as correctly as the patient way does (Clinger 1990, How to read floating point numbers accurately).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.crc import Bytes

Flags = npt.NDArray[np.bool_]
MOST_MANTISSA, MOST_POWER = 1e15, 22
LONGEST = 24
_ZERO, _MINUS, _PLUS, _DOT, _E = (ord(letter) for letter in "0-+.e")
_POINT = (_DOT - _ZERO) % 256  # as it stands after zero was taken off
_TENS = 10.0 ** np.arange(LONGEST + 1)


class _NoDecimalError(ValueError):
    """Say that a field is no plain decimal."""


def padded(text: bytes) -> Bytes:
    """Return a text as numbers, behind as many zeros as the longest field has letters: `parse_column` looks that far back."""
    return np.frombuffer(b"0" * LONGEST + text, dtype=np.uint8)


def parse_column(data: Bytes, starts: Integers, ends: Integers) -> Floats | None:
    """Parse the fields of one column.

    Args:
        data: the padded text.
        starts, ends: shape (n,), where each field begins and where the delimiter behind it stands, in the text without padding.

    Returns:
        Shape (n,), or None where a field is no plain decimal of at most 15 digits (then the patient way must do).

    Example:
        >>> parse_column(padded(b"1.25,-3e2,"), np.array([0, 5]), np.array([4, 9])).tolist()
        [1.25, -300.0]
    """
    if not len(starts):
        return np.empty(0)
    lengths = ends - starts
    width, least = int(lengths.max()), int(lengths.min())
    if width > LONGEST or least < 1:
        return None
    # one row for each place of the letters: whole rows are what array operations are quick at
    letters = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, width)[ends + (LONGEST - width)].T)
    first = width - lengths
    if least < width:
        letters[np.arange(width)[:, None] < first] = _ZERO  # what stands before a shorter field belongs to another
    try:
        return _with_exponents(letters, first)
    except _NoDecimalError:
        return None


def _groups(keys: Integers) -> Iterator[tuple[int, Integers | slice]]:
    """Yield each key with its rows; all rows as a slice where there is one key only."""
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        yield low, slice(None)
        return
    for key in np.unique(keys).tolist():
        yield key, np.flatnonzero(keys == key)


def _with_exponents(letters: Bytes, first: Integers) -> Floats:
    """Parse fields, shape (letters, n), aligned at their ends; `first` is where each begins."""
    marks = letters == _E
    if not marks.any():
        mantissa, places = _decimal(letters, first)
        return np.asarray(mantissa / _TENS[places], dtype=np.float64)
    width = len(letters)
    values = np.empty(letters.shape[1])
    for at, fields in _groups(np.where(marks.any(axis=0), np.argmax(marks, axis=0), width)):
        part = letters[:, fields]
        mantissa, places = _decimal(part[:at], first[fields])
        power = -places
        if at < width:
            exponent, _ = _decimal(part[at + 1 :], np.zeros(part.shape[1], dtype=np.int64))
            if (part[at + 1 :] == _DOT).any() or np.abs(exponent).max() > LONGEST:
                raise _NoDecimalError
            power = power + exponent.astype(np.int64)
        if np.abs(power).max() > MOST_POWER:
            raise _NoDecimalError
        tens = _TENS[np.abs(power)]
        values[fields] = np.where(power < 0, mantissa / tens, mantissa * tens)
    return values


def _decimal(letters: Bytes, first: Integers) -> tuple[Floats, Integers]:
    """Return the signed digits of each field as a whole number, and how many stand behind the point."""
    width, count = letters.shape
    if not width:
        raise _NoDecimalError
    signs = (letters == _MINUS) | (letters == _PLUS)
    digits = letters - np.uint8(_ZERO)
    negative: Flags | None = None
    taken = np.zeros(count, dtype=np.int64)
    if signs.any():
        leading = letters[np.minimum(first, width - 1), np.arange(count)]
        negative = leading == _MINUS
        taken = (negative | (leading == _PLUS)).astype(np.int64)
        if signs.sum() != taken.sum():
            raise _NoDecimalError  # a sign in the middle: a date, a range
        digits[signs] = 0
    points = digits == _POINT
    behind = np.full(count, -1, dtype=np.int64)
    for place in np.flatnonzero(points.any(axis=1)).tolist():
        if (behind[points[place]] >= 0).any():
            raise _NoDecimalError  # two points: a version, an address
        behind[points[place]] = width - 1 - place
        digits[place][points[place]] = 0
    if digits.max() > 9 or int((width - first - taken - (behind >= 0)).min()) < 1:
        raise _NoDecimalError  # other letters, or no digit at all
    whole = np.empty(count)
    for places, fields in _groups(behind):
        powers = _TENS[width - 1 :: -1].copy()
        if places >= 0:
            powers[: width - 1 - places] /= 10.0  # the point takes a place of its own
        whole[fields] = powers @ digits[:, fields].astype(np.float64)
    if whole.max() >= MOST_MANTISSA:
        raise _NoDecimalError
    return (whole if negative is None else np.where(negative, -whole, whole)), np.maximum(behind, 0)
