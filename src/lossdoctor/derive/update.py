"""How much a step changes the weights: sizes over weight tensors, from the wide signals of a training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lossdoctor.core.run import Floats, Series, Training

# A first step that changes a tensor a million times over starts at zero (rates 3,000 times too high measured up to 100).
FROM_ZERO = 1e6


@dataclass(frozen=True)
class UpdateSpread:
    """Hold how update sizes differ between the weight tensors, each tensor's median over the run.

    Example:
        >>> UpdateSpread(1e-6, 4e-6).factor
        4.0
    """

    smallest: float
    largest: float

    @property
    def factor(self) -> float:
        """The largest over the smallest."""
        return self.largest / self.smallest if self.smallest > 0 else float("inf")


def weight_columns(training: Training, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Tell which columns of a wide signal are weights that learn: two dimensions or more, gradient wanted.

    Biases and scales start at 0 or 1, so that their relative change says nothing of the rate.

    Args:
        training: with the fact `parameters`; without it every column counts.
        names: the columns.

    Returns:
        Shape (width,).

    Example:
        >>> facts = {"parameters": [{"shape": [4, 2], "requires_grad": True}, {"shape": [4], "requires_grad": True}]}
        >>> weight_columns(Training(facts=facts), ("w", "b")).tolist()
        [True, False]
    """
    described = training.fact("parameters") or []
    everything = np.ones(len(names), dtype=bool)
    if len(described) != len(names):
        return everything
    chosen = np.array([len(each.get("shape", ())) >= 2 and each.get("requires_grad", True) for each in described], dtype=bool)
    return chosen if chosen.any() else everything


def update_sizes(training: Training) -> Series:
    """Return per sampled step the median over weight tensors of update norm / weight norm.

    Tensors without a gradient, or with one that is exactly zero, take no part: they say nothing of the rate.

    Raises:
        SignalMissing: where `update_ratios` was not recorded.

    Example:
        >>> ratios = Series.of([[0.01, 0.03, 0.02]], names=("a", "b", "c"))
        >>> update_sizes(Training(signals={"update_ratios": ratios})).last
        0.02
    """
    ratios = training.series("update_ratios")
    values = _with_gradient(training, ratios)
    known = ~np.isnan(values).all(axis=1)
    return Series(ratios.steps[known], np.asarray(np.nanmedian(values[known], axis=1), dtype=np.float64))


def update_spread(training: Training) -> UpdateSpread | None:
    """Return the smallest and largest update size over weight tensors, each tensor's own median over the run.

    Raises:
        SignalMissing: where `update_ratios` was not recorded.

    Example:
        >>> ratios = Series.of([[0.01, 0.03], [0.01, 0.05]], names=("a", "b"))
        >>> update_spread(Training(signals={"update_ratios": ratios}))
        UpdateSpread(smallest=0.01, largest=0.04)
    """
    values = _with_gradient(training, training.series("update_ratios"))
    known = values[:, ~np.isnan(values).all(axis=0)]
    if not known.size:
        return None
    middle = np.nanmedian(known, axis=0)
    return UpdateSpread(float(middle.min()), float(middle.max()))


def displacements(training: Training) -> Series:
    """Return per sampled step the median over weight tensors of the change since the start / the norm at the start.

    Raises:
        SignalMissing: where `displacements` was not recorded.

    Example:
        >>> displacements(Training(signals={"displacements": Series.of([[0.0, 0.0], [0.25, 0.5]], names=("a", "b"))})).last
        0.375
    """
    moved = training.series("displacements")
    values = np.where(np.isfinite(moved.values), moved.values, np.nan)[:, _comparable(training, moved.names)]
    known = ~np.isnan(values).all(axis=1)
    return Series(moved.steps[known], np.asarray(np.nanmedian(values[known], axis=1), dtype=np.float64))


def _comparable(training: Training, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Tell which columns are weights that did not start at zero: the change relative to zero says nothing of the rate."""
    columns = weight_columns(training, names)
    ratios = training.signals.get("update_ratios")
    if ratios is None or not len(ratios) or ratios.values.shape[1] != len(names):
        return columns
    grown = columns & ~(ratios.values[0] > FROM_ZERO)
    return grown if grown.any() else columns


def _with_gradient(training: Training, ratios: Series) -> Floats:
    """Return the ratios with NaN where a column is no weight, or its gradient at that step was absent or exactly zero."""
    values = np.where(_comparable(training, ratios.names), ratios.values, np.nan)
    norms = training.signals.get("grad_norms")
    if norms is not None and norms.values.shape[1:] == values.shape[1:]:
        _, mine, its = np.intersect1d(ratios.steps, norms.steps, return_indices=True)
        gradient = norms.values[its]
        values[mine] = np.where((gradient == 0) | np.isnan(gradient), np.nan, values[mine])
    return values
