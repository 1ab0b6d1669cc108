"""A curve in one line of text: each character is the mean of a stretch of the curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lossdoctor.core.run import Floats, Integers

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
# Above this ratio of the largest to the first value the line is drawn on a logarithmic scale (starting value).
RUNAWAY = 50.0


def sparkline(values: Sequence[float], width: int = 40, *, ascii_only: bool = False) -> str:
    """Draw values as one line of blocks, lowest to highest; `x` marks a stretch with a value that is not finite.

    Args:
        values: any number of values, evenly spaced.
        width: most characters to use.
        ascii_only: draw with ASCII characters.

    Example:
        >>> sparkline([1, 2, 3, float("nan")], ascii_only=True)
        '_:#x'
    """
    heights = scaled(stretches(levels(np.asarray(values, dtype=np.float64)), width))
    marks = ASCII if ascii_only else BLOCKS
    return "".join(marks[min(int(height * len(marks)), len(marks) - 1)] if np.isfinite(height) else "x" for height in heights)


def levels(values: Floats) -> Floats:
    """Return values, shape (n,), or their logarithms where they rose so far above the first that only the peak would show."""
    finite = values[np.isfinite(values)]
    ran_away = len(finite) > 0 and finite.min() > 0 and float(finite.max()) > RUNAWAY * float(finite[0])
    with np.errstate(invalid="ignore"):  # minus infinity among the values
        return np.log(values) if ran_away else values


def scaled(values: Floats) -> Floats:
    """Map values, shape (n,), to [0, 1], lowest to highest; NaN where not finite."""
    heights = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(heights).all():
        return heights
    heights = heights / max(float(np.nanmax(np.abs(heights))), 1e-300)  # so that no difference overflows
    low, high = float(np.nanmin(heights)), float(np.nanmax(heights))
    return np.asarray((heights - low) / (high - low) if high > low else heights - low)


def stretches(values: Floats, width: int) -> Floats:
    """Return the means of at most `width` stretches of values, shape (n,); NaN where a stretch holds a value that is not finite."""
    if len(values) == 0:
        return values
    parts = np.array_split(values, min(width, len(values)))
    with np.errstate(all="ignore"):
        means = np.array([(part / len(part)).sum() for part in parts])
    means[~np.isfinite(means)] = np.nan
    return means


def svg(values: Sequence[float], width: int = 320, height: int = 48) -> str:
    """Draw values as an SVG line, broken where a value is not finite; empty where there are fewer than two.

    Args:
        values: any number of values, evenly spaced.
        width, height: of the picture, in pixels.

    Example:
        >>> svg([1.0])
        ''
    """
    heights = scaled(levels(np.asarray(values, dtype=np.float64)))
    if np.isfinite(heights).sum() < 2:
        return ""
    across = np.linspace(1, width - 1, len(heights))
    down = (height - 2) - heights * (height - 4)
    lines = "".join(_polyline(across[part], down[part]) for part in _unbroken(heights))
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="loss curve">{lines}</svg>'


def _unbroken(heights: Floats) -> list[Integers]:
    """Return the indices of each stretch of finite values."""
    places = np.flatnonzero(np.isfinite(heights))
    return list(np.split(places, np.flatnonzero(np.diff(places) > 1) + 1))


def _polyline(across: Floats, down: Floats) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.2"/>'
