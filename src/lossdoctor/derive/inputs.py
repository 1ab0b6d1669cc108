"""How far the inputs of a training are from unit scale, from the statistics of its first batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from typing import Any

import numpy as np

from lossdoctor.core.run import Row

BATCHES = 10  # first batches that are pooled


@dataclass(frozen=True)
class InputScale:
    """Hold the scale of one input tensor over its first batches.

    Args:
        largest: root mean square of the largest feature (about 1 for standardised inputs).
        typical: median of the features' root mean squares.
        shape: of the first batch.
        low, high: smallest and largest element.
        steps: of the batches that were pooled.
        sentinel: whether a value far from all others repeats: then it, not the unit, makes the scale.

    Example:
        >>> InputScale(200.0, 180.0, (32, 64), 0.0, 255.0, (0, 9)).uneven
        1.1111111111111112
    """

    largest: float
    typical: float
    shape: tuple[int, ...]
    low: float
    high: float
    steps: tuple[int, int]
    sentinel: bool = False

    @property
    def uneven(self) -> float:
        """How many times larger the largest feature is than the middle one."""
        return self.largest / self.typical if self.typical > 0 else 1.0


def input_scale(batches: Sequence[Row]) -> InputScale | None:
    """Measure the floating-point input that is farthest from unit scale; integer inputs are names, not amounts.

    Args:
        batches: rows of the signal `batch`.

    Returns:
        None where no input is of floating point with two dimensions or more.

    Example:
        >>> features = {"feature_means": [0.0, 100.0], "feature_stds": [1.0, 0.0]}
        >>> fields = {"shape": [32, 2], "integer": False, "mean": 50.0, "std": 50.0, **features}
        >>> input_scale([Row(0, {"inputs": [fields]})]).largest
        100.0
    """
    first = sorted(batches, key=lambda row: row.step)[:BATCHES]
    count = max((len(row.get("inputs") or ()) for row in first), default=0)
    scales = [scale for place in range(count) if (scale := _scale(list(_amounts(first, place)))) is not None]
    return max(scales, key=lambda scale: scale.largest, default=None)


def _amounts(batches: Sequence[Row], place: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield step and fields of one input where they are amounts that can be judged."""
    for row in batches:
        fields = dict(enumerate(row.get("inputs") or ())).get(place, {"integer": True})
        known = all(isinstance(fields.get(name), int | float) and isfinite(fields[name]) for name in ("mean", "std"))
        if known and not fields.get("integer") and len(fields.get("shape") or ()) >= 2:
            yield row.step, fields


def _scale(found: list[tuple[int, Mapping[str, Any]]]) -> InputScale | None:
    if not found:
        return None
    sizes = _feature_sizes([fields for _, fields in found])
    fields = found[0][1]
    return InputScale(
        largest=float(sizes.max()),
        typical=float(np.median(sizes)),
        shape=tuple(fields["shape"]),
        low=min(float(each.get("min") or 0.0) for _, each in found),
        high=max(float(each.get("max") or 0.0) for _, each in found),
        steps=(found[0][0], found[-1][0]),
        sentinel=any(each.get("sentinel_share") for _, each in found),
    )


def _feature_sizes(batches: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return the root mean square of each feature over all batches; of the whole tensor where features were not written."""
    means, stds = ([each.get(name) for each in batches] for name in ("feature_means", "feature_stds"))
    width = len(means[0] or ())
    if not width or any(not each or len(each) != width for each in (*means, *stds)):
        return np.array([np.sqrt(np.mean([hypot(each["mean"], each["std"]) ** 2 for each in batches]))])
    squares = np.square(np.array(means, dtype=np.float64)) + np.square(np.array(stds, dtype=np.float64))
    return np.asarray(np.sqrt(np.nanmean(squares, axis=0)), dtype=np.float64)
