"""The shape of a loss curve in a few figures: where it starts and ends, its noise, its final stretch, its sudden drops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lossdoctor.core.run import Floats, Series, Training
from lossdoctor.derive.noise import noise_floor
from lossdoctor.derive.remember import remembered
from lossdoctor.derive.smooth import blocks, tail

# Parts that a curve is averaged to: few enough to smooth, enough to see where it bends.
PARTS = 40
# Words of a log that say what its loss is; such losses are not expected to fall.
ADVERSARIAL = frozenset(
    ["gan", "discriminator", "generator", "adversarial", "disc", "gen", "lossd", "lossg", "d", "g", "fake", "real", "critic"]
)
REINFORCED = frozenset(
    ["reward", "rewards", "policy", "advantage", "advantages", "actor", "return", "returns", "entropy", "kl", "ppo", "episode"]
)


@dataclass(frozen=True)
class Shape:
    """Hold the shape of a loss curve.

    Args:
        count: finite values.
        start: the first level: the larger of the first value and the mean of the first part.
        level: median of the last tenth.
        best: lowest mean of a part.
        noise: standard deviation of a single value around the curve.
        means: shape (k,), the parts' means, k at most 40.
        ends: shape (k,), last step of each part.

    Example:
        >>> shape(Series.of([2.0, 1.0, 0.5, 0.5])).level
        0.5
    """

    count: int
    start: float
    level: float
    best: float
    noise: float
    means: Floats
    ends: tuple[int, ...]

    @property
    def fall(self) -> float:
        """The share of the start that was lost by the end; negative where it rose."""
        return (self.start - self.level) / abs(self.start) if self.start else 0.0

    @property
    def error(self) -> float:
        """The standard error of a part's mean."""
        return self.noise / float(np.sqrt(max(1.0, self.count / max(1, len(self.means)))))


@remembered
def shape(loss: Series) -> Shape | None:
    """Describe a loss curve; None for fewer than two finite values.

    Args:
        loss: scalar, shape (n,), one value per step or per line of a log.
    """
    kept = loss.finite()
    if len(kept) < 2:
        return None
    parts = blocks(kept, PARTS)
    return Shape(
        count=len(kept),
        start=max(kept.first, parts.first),
        level=float(np.median(tail(kept).values)),
        best=float(parts.values.min()),
        noise=noise_floor(kept),
        means=parts.values,
        ends=tuple(int(step) for step in parts.steps),
    )


def crests(series: Series, most: int = 20_000) -> Series:
    """Shorten a long series to the highest value of each of many equal stretches; one that is not finite counts as highest.

    Args:
        series: scalar, shape (n,).
        most: values that are kept; a shorter series is returned as it is.

    Example:
        >>> crests(Series.of([1.0, 9.0, 2.0, 3.0]), 2).values.tolist()
        [9.0, 3.0]
    """
    width = -(-len(series) // most)
    if width <= 1:
        return series
    padding = -len(series) % width
    ranked = np.where(np.isfinite(series.values), series.values, np.inf)
    highest = np.argmax(np.concatenate([ranked, np.full(padding, -np.inf)]).reshape(-1, width), axis=1)
    kept = np.arange(len(highest)) * width + highest
    return Series(series.steps[kept], series.values[kept])


def objective(training: Training) -> str:
    """Say what a log's figures are of: `plain`, `adversarial` or `reinforced`, by the words of its columns.

    Example:
        >>> objective(Training(facts={"log_words": ["loss", "reward"]}))
        'reinforced'
    """
    if training.roles:
        return "adversarial"
    held = set(training.fact("log_words") or ())
    if held & REINFORCED:
        return "reinforced"
    # one letter alone says nothing; generator and discriminator come in pairs
    pairs = ({"d", "g"}, {"lossd", "lossg"}, {"disc", "gen"}, {"discriminator", "generator"}, {"fake", "real"})
    if held & {"gan", "adversarial"} or any(pair <= held for pair in pairs):
        return "adversarial"
    return "plain"


def flat_tail(found: Shape, tolerance: float) -> float:
    """Return the share of the curve, from its end backwards, whose parts stay within a tolerance of the last level.

    Args:
        found: the shape.
        tolerance: in the unit of the loss.

    Example:
        >>> flat_tail(shape(Series.of([4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])), 0.1)
        0.75
    """
    beyond = np.flatnonzero(np.abs(found.means - found.level) > tolerance)
    first = int(beyond[-1]) + 1 if len(beyond) else 0
    return (len(found.means) - first) / len(found.means)
