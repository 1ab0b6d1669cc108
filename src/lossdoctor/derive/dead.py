"""How many units of the hidden layers are dead: rows of a weight whose gradients are exactly zero."""

from __future__ import annotations

import numpy as np

from lossdoctor.core.run import Series, Training

ABLE, UNABLE = 0.05, 0.1  # relative loss after memorising: fresh starts at most .007 where units were dead (field guide, "Measured")
ALL = 0.97  # share of a layer's units from which on none is left that could learn (field guide, "Measured": 1.0 at step 0 where dead)


def worst_layer(series: Series, at: int) -> tuple[float, str]:
    """Return the largest share of dead units among the weights but the last, and whose it is.

    Args:
        series: the signal `zero_rows`, shape (n, weights).
        at: which sample, e.g. 0 or -1.

    Example:
        >>> worst_layer(Series.of([[1.0, 0.5, 0.0]], [0], ["0.weight", "2.weight", "4.weight"]), 0)
        (1.0, '0.weight')
    """
    shares = series.values[at].copy()
    known = np.flatnonzero(np.isfinite(shares))
    if len(known) < 2:
        return 0.0, ""
    hidden = known[:-1]  # the last weight makes the output: its rows die with classes that a batch lacks
    worst = int(hidden[np.argmax(shares[hidden])])
    return float(shares[worst]), series.names[worst] if series.names else ""


def dead_throughout(training: Training) -> bool:
    """Tell whether all units of some hidden layer were dead at the first sample and at the last."""
    series = training.signals.get("zero_rows")
    return series is not None and len(series) > 0 and all(worst_layer(series, at)[0] >= ALL for at in (0, -1))


def dead_start(training: Training) -> bool:
    """Tell whether sixteen examples are memorised from fresh starts and not from the own one: what it hides shows from a fresh one."""
    found = training.found("memorise")
    return "fresh_median" in found and float(found["own"]) > UNABLE and float(found["fresh_median"]) < ABLE
