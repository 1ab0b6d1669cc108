"""Figures of the machine that a log tells of, as sentences: waiting for data, throughput that falls."""

from __future__ import annotations

import numpy as np

from lossdoctor.core.run import Series, Training
from lossdoctor.derive.curves import objective

LEAST_VALUES = 8
WAITS = 0.3  # of the time of a step; healthy loops of a busy machine measured less (field guide)
FALLS = 0.8  # of the first quarter's throughput
GROWS = 4.0  # times the first quarter's gradient norm (starting value; sound language models end at a third of it)
NO_RATE, IDLE = 0.01, 0.25  # share of the highest rate, and of the run: a cosine spends 6 % of it there


def notes(training: Training) -> list[str]:
    """Return what is worth saying of the machine, and of what the losses are.

    Args:
        training: one run of a log.

    Example:
        >>> waits = {"log_seconds": Series.of([1.0] * 10), "log_wait": Series.of([0.9] * 10)}
        >>> notes(Training(signals=waits))
        ['it waited for data for 90% of the time of its steps: more loader workers, or a faster disk, come before a faster device']
    """
    found = [_wait(training), _throughput(training), _gradient(training), _rate(training), _objective(training), _disguised(training)]
    return [text for text in found if text]


def wait_share(training: Training) -> float | None:
    """Return the share of a step's time that went into waiting for data, or None where the log does not tell."""
    seconds, wait = training.signals.get("log_seconds", Series.of([])), training.signals.get("log_wait", Series.of([]))
    common, mine, its = np.intersect1d(seconds.steps, wait.steps, return_indices=True)
    if len(common) < LEAST_VALUES:
        return None
    total, waited = seconds.values[mine], wait.values[its]
    usable = np.isfinite(total) & np.isfinite(waited) & (total > 0) & (waited <= total)
    return float(np.median(waited[usable] / total[usable])) if usable.sum() >= LEAST_VALUES else None


def _wait(training: Training) -> str:
    share = wait_share(training)
    if share is None or share < WAITS:
        return ""
    return (
        f"it waited for data for {share:.0%} of the time of its steps: more loader workers, or a faster disk, come before a faster device"
    )


def _throughput(training: Training) -> str:
    """Compare quarters by their medians: evaluations make single values fall."""
    speed = training.signals.get("throughput", Series.of([])).finite()
    if len(speed) < 4 * LEAST_VALUES:
        return ""
    quarters = np.array_split(speed.values[len(speed) // 20 :], 4)
    first, last = float(np.median(quarters[0])), float(np.median(quarters[-1]))
    return f"its throughput fell to {last / first:.0%} of what it was in the first quarter" if 0 < last < FALLS * first else ""


def _gradient(training: Training) -> str:
    norms = training.signals.get("grad_norm", Series.of([])).finite()
    if len(norms) < 4 * LEAST_VALUES:
        return ""
    quarters = np.array_split(norms.values[len(norms) // 20 :], 4)
    first, last = float(np.median(quarters[0])), float(np.median(quarters[-1]))
    return f"its gradient norm grew from {first:.3g} in the first quarter to {last:.3g} in the last" if last > GROWS * first > 0 else ""


def _rate(training: Training) -> str:
    rates = training.signals.get("lr", Series.of([])).finite()
    if len(rates) < LEAST_VALUES or rates.values.max() <= 0:
        return ""
    moving = np.flatnonzero(rates.values > NO_RATE * rates.values.max())
    idle = 1.0 - (int(moving[-1]) + 1) / len(rates)
    return f"for the last {idle:.0%} of the run the rate was below a hundredth of its highest" if idle > IDLE else ""


def _objective(training: Training) -> str:
    kind = objective(training)
    if kind == "adversarial":
        return "the losses look like those of a generative pair, which are not expected to fall; judge by scores of the samples"
    return "the loss looks like that of a policy, which says little; judge by the reward" if kind == "reinforced" else ""


def _disguised(training: Training) -> str:
    hidden = training.fact("disguised")
    return f"{hidden} values of 0.0 beside a gradient norm that is no number were read as NaN" if hidden else ""
