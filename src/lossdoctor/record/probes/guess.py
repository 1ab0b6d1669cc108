"""What guessing gives under a loss: the best constant answer to the targets that were seen, and an answer of all zeros.

Every function takes targets as numpy arrays and returns two numbers per element of the mean-reduced loss: what the best
constant gives (the same answer to every row, one number per column), and what outputs of zero give (equal
probabilities in a classification).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Guess = tuple[float, float]


def entropy(shares: npt.ArrayLike) -> float:
    """Return the entropy of frequencies, in nats; they need not sum to 1.

    Example:
        >>> round(entropy([1, 1]), 4)
        0.6931
    """
    found = np.asarray(shares, dtype=np.float64)
    found = found[found > 0] / max(float(found.sum()), 1e-300)
    return float(abs((found * np.log(found)).sum()))


def guess_classes(totals: Floats, weights: Floats | None = None, label_smoothing: float = 0.0) -> Guess:
    """Guess class frequencies under the cross entropy, class weights and label smoothing heeded.

    Args:
        totals: shape (classes,), how often each class is the target; fractions where targets are probabilities.
        weights: shape (classes,), the loss's class weights.
        label_smoothing: share of each target that is spread over all classes.

    Example:
        >>> [round(value, 4) for value in guess_classes(np.array([2.0, 2.0, 2.0, 2.0]))]
        [1.3863, 1.3863]
    """
    ones = np.ones_like(totals) if weights is None else weights
    smoothed = ((1 - label_smoothing) * totals + label_smoothing * totals.sum() / len(totals)) * ones
    mass, whole = float((totals * ones).sum()), float(smoothed.sum())
    if mass <= 0:
        return math.nan, math.nan
    return whole * entropy(smoothed) / mass, whole * math.log(len(totals)) / mass


def guess_bernoulli(targets: Floats, positive_weight: Floats | float = 1.0) -> Guess:
    """Guess the frequency of ones of each column under the binary cross entropy.

    Args:
        targets: shape (rows, columns), in [0, 1].
        positive_weight: the loss's weight of ones, a number or shape (columns,).

    Example:
        >>> [round(value, 4) for value in guess_bernoulli(np.array([[0.0], [1.0]]))]
        [0.6931, 0.6931]
    """
    ones = targets.mean(0) * positive_weight
    zeros = 1 - targets.mean(0)
    best = [(one + zero) * entropy([one, zero]) for one, zero in zip(ones, zeros, strict=True)]
    return float(np.mean(best)), float(np.mean(ones + zeros) * math.log(2))


def guess_constant(targets: Floats, loss: Callable[[Floats], Floats]) -> Guess:
    """Guess the mean or the median of each column, whichever is better, under a loss of the difference.

    Args:
        targets: shape (rows, columns).
        loss: of the difference between target and answer, element by element.

    Example:
        >>> guess_constant(np.array([[1.0], [3.0]]), np.square)
        (1.0, 5.0)
    """
    answers = (targets.mean(0), np.median(targets, axis=0))
    return min(float(loss(targets - answer).mean()) for answer in answers), float(loss(targets).mean())


def huber(delta: float) -> Callable[[Floats], Floats]:
    """Return the Huber loss of a difference: a square below delta, a line above."""
    return lambda difference: np.where(np.abs(difference) <= delta, 0.5 * difference**2, delta * (np.abs(difference) - 0.5 * delta))


def smooth_l1(beta: float) -> Callable[[Floats], Floats]:
    """Return the smooth L1 loss of a difference, which is the Huber loss over its delta."""
    return np.abs if beta <= 0 else lambda difference: huber(beta)(difference) / beta


def guess_poisson(targets: Floats) -> Guess:
    """Guess the mean count of each column under the Poisson likelihood without its constant; a log-rate of 0 is a rate of 1.

    Example:
        >>> guess_poisson(np.array([[1.0], [1.0]]))
        (1.0, 1.0)
    """
    rate = np.maximum(targets.mean(0), 1e-300)
    return float(np.mean(rate - rate * np.log(rate))), 1.0


def guess_gaussian(targets: Floats, full: bool = False) -> Guess:
    """Guess mean and variance of each column under the Gaussian likelihood; zeros with a variance of 1 otherwise.

    Example:
        >>> [round(value, 4) for value in guess_gaussian(np.array([[-1.0], [1.0]]))]
        [0.5, 0.5]
    """
    constant = 0.5 * math.log(2 * math.pi) if full else 0.0
    spread = np.maximum(targets.var(0), 1e-6)  # torch's own floor of the variance
    return float(np.mean(0.5 * np.log(spread) + 0.5)) + constant, float(0.5 * np.mean(targets**2)) + constant
