"""The noise of a series: how far neighbouring values differ when the curve itself does not move."""

from __future__ import annotations

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.remember import remembered

TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, for normal noise


@remembered
def noise_floor(series: Series) -> float:
    """Estimate the standard deviation of the noise around a curve that bends slowly.

    From second differences, which a straight stretch leaves at zero: their variance is 6 times that of the noise
    (coefficients 1, -2, 1). The median makes it deaf to jumps.

    Args:
        series: scalar, shape (n,); values that are not finite are left out.

    Returns:
        In the unit of the series; 0 for fewer than four values.

    Example:
        >>> noise_floor(Series.of([4.0, 3.0, 2.0, 1.0]))
        0.0
    """
    values = series.finite().values
    if len(values) < 4:
        return 0.0
    second = np.diff(values, 2)
    return float(TO_SIGMA * np.median(np.abs(second)) / np.sqrt(6.0))


@remembered
def spread(series: Series) -> float:
    """Return the robust standard deviation of the values themselves (their median absolute deviation, scaled).

    Example:
        >>> round(spread(Series.of([1.0, 2.0, 3.0])), 4)
        1.4826
    """
    values = series.finite().values
    if not len(values):
        return 0.0
    return float(TO_SIGMA * np.median(np.abs(values - np.median(values))))
