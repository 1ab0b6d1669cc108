"""What a script prints of itself: the numbers of its last lines, and how much of the way from one run to another a third went."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
_UNSEEN, _SEEN = ("val", "valid", "test", "next", "again", "second", "correct", "right"), ("train", "training")
_OF_ROWS = re.compile(rf"\b({'|'.join((*_UNSEEN, *_SEEN))})", re.IGNORECASE)
_COUNTS = re.compile(r"\b(epoch|step|round|iter|it|chunk|batch|rate|lr|wall|vocab)[\s:=]*(?:#\s*/\s*)?$", re.IGNORECASE)
_TIME = re.compile(r"\s*(?:m?s|sec|seconds)\b")
CLEAR = 0.1  # of the larger of two numbers: below it they do not tell one run from the other (starting value)
Place = tuple[str, int]  # a line with its numbers struck out, and which of them


@dataclass(frozen=True)
class Metric:
    """Hold the number that tells a sick run from a mended one best, and what a treated one reached.

    Args:
        name: the words before it.
        sick, mended, treated: its last values.

    Example:
        >>> round(Metric("val loss", 2.0, 1.0, 1.1).recovered, 2)
        0.9
    """

    name: str
    sick: float
    mended: float
    treated: float

    @property
    def recovered(self) -> float:
        """The share of the way from sick to mended; of a sick number that is not finite, how near the treated one is to the mended."""
        if not math.isfinite(self.treated):
            return 0.0
        if not math.isfinite(self.sick):
            unit = max(abs(self.treated), abs(self.mended))
            return 1.0 - abs(self.treated - self.mended) / unit if unit else 1.0
        return (self.treated - self.sick) / (self.mended - self.sick)


def last_numbers(text: str) -> dict[Place, float]:
    """Return the last value of every number that lines of the same wording hold.

    Example:
        >>> last_numbers("epoch 1 loss 2.5\\nepoch 2 loss 0.5")
        {('epoch # loss #', 0): 2.0, ('epoch # loss #', 1): 0.5}
    """
    found: dict[Place, float] = {}
    for line in text.splitlines():
        wording = " ".join(_NUMBER.sub("#", line).split())
        found |= {(wording, place): float(number) for place, number in enumerate(_NUMBER.findall(line))}
    return found


def metric(sick: str, mended: str, treated: str) -> Metric | None:
    """Return the script's own metric: of unseen rows where such a number tells the runs apart, else the one that does so best.

    Args:
        sick, mended, treated: what the three runs printed.

    Example:
        >>> metric("loss 2.0 val acc 0.1", "loss 1.9 val acc 0.9", "loss 1.9 val acc 0.8").name
        'val acc'
    """
    one, other, third = (last_numbers(text) for text in (sick, mended, treated))
    gaps = {place: gap(one[place], other[place]) for place in one if place in other and place in third and not _is_count(place)}
    clear = {place: size for place, size in gaps.items() if size >= CLEAR}
    best = _largest({place: size for place, size in clear.items() if _is_unseen(place)}) or _largest(clear)
    return Metric(_name(best), one[best], other[best], third[best]) if best else None


def gap(one: float, other: float) -> float:
    """Return how far two numbers lie apart, as a share of the larger; 1 where one of them is not finite.

    Example:
        >>> gap(2.0, 1.0)
        0.5
    """
    if not math.isfinite(one) or not math.isfinite(other):
        return float(math.isfinite(one) != math.isfinite(other))
    unit = max(abs(one), abs(other))
    return min(1.0, abs(one - other) / unit) if unit else 0.0


def _largest(sizes: Mapping[Place, float]) -> Place | None:
    return max(sizes, key=lambda place: sizes[place], default=None)


def _before(place: Place) -> str:
    """Return the line up to a number."""
    return "#".join(place[0].split("#")[: place[1] + 1])


def _is_count(place: Place) -> bool:
    return bool(_COUNTS.search(_before(place)))


def _is_unseen(place: Place) -> bool:
    words = _OF_ROWS.findall(_before(place))
    return bool(words) and words[-1].lower() in _UNSEEN and not _TIME.match(place[0].split("#")[place[1] + 1])


def _name(place: Place) -> str:
    parts = place[0].split("#")
    before, after = parts[place[1]].strip(" |:,=()"), parts[place[1] + 1].strip(" |:,=()")
    return before or after or "number"
