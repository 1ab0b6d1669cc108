"""How gradients change along the depth of a model: the norm per weight element of the first weights against the last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from lossdoctor.core.run import Training
from lossdoctor.derive.update import weight_columns

FEWEST = 4  # weights below which there is no depth to speak of


@dataclass(frozen=True)
class Flow:
    """Hold how gradients change from the last weight to the first.

    Args:
        ratio: root mean square gradient of the first two weights over that of the last two, at the first step.
        first, last: those root mean squares.
        weights: how many weight tensors there are.
        step: where it was taken.

    Example:
        >>> Flow(1e-4, 1e-6, 1e-2, 12, 0).ratio
        0.0001
    """

    ratio: float
    first: float
    last: float
    weights: int
    step: int


def flow(training: Training, at: int = 0) -> Flow | None:
    """Return how gradients change along depth, in the order in which the model names its weights.

    Args:
        training: with `grad_norms` and the fact `parameters`.
        at: index of the sample.

    Returns:
        None for fewer than four weights with a gradient.

    Example:
        >>> flow(Training(), 0) is None
        True
    """
    norms = training.signals.get("grad_norms")
    described = training.fact("parameters") or []
    if norms is None or not len(norms) or len(described) != norms.values.shape[1]:
        return None
    columns = np.flatnonzero(weight_columns(training, norms.names))
    sizes = np.array([float(prod(described[column].get("shape") or (1,))) for column in columns])
    values = norms.values[at][columns] / np.sqrt(np.maximum(sizes, 1.0))
    known = values[np.isfinite(values)]
    if len(known) < FEWEST:
        return None
    first, last = float(np.mean(known[:2])), float(np.mean(known[-2:]))
    ratio = first / last if last > 0 else float("nan")
    return Flow(ratio, first, last, len(known), int(norms.steps[at]))
