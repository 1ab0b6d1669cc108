"""The loss spikes: a few values far above their neighbours.

What you see
------------
One or a few steps at which the loss, and mostly the gradient norm, is a multiple of what it was; then it comes back.

Why it happens
--------------
A batch of odd data meets weights that are sensitive to it; the rate is at its edge; attention or normalisation is not bounded.

How it is told apart
--------------------
A spike rises eight deviations and half of the level above the values before it, by a tenth at least of all that the run gained. Where
the loss is back at once it is one batch, and advice; where the way back takes a stretch of the run, it cost that stretch. Noise that throws
such values again and again, or in the first steps of a warm-up, is no spike. A loss that does not come back has diverged.

What to do
----------
Clip the gradient norm near its usual size; look at the batch of that step; normalise queries and keys, or lower the rate a little. Where
it costs much, go back to the checkpoint before and skip the batch.

When this is wrong
------------------
A log of means over many steps hides short spikes; one of single batches shows every hard batch.
"""

from __future__ import annotations

import math

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.curves import crests, objective, shape
from lossdoctor.derive.jumps import Jump, jumps
from lossdoctor.derive.smooth import rolling_median

LEAST_VALUES = 20
# Starting values.
GAINED = 0.1  # share of the run's gain that a spike must undo for a moment
OFTEN = 0.02  # more jumps than this share of the values are noise
EARLY = 0.03  # share of the run in which a warm-up passes its unstable place
BEFORE = 20  # values before a spike that tell the usual level and its noise
COST, FEWEST = 0.1, 5  # share and number of values that the way back takes, from which it counts as a loss of time


def detect(training: Training) -> Detection | None:
    """Look for jumps that came back, and for what the way back cost."""
    loss = crests(training.series("loss"))
    found = shape(loss)
    if found is None or found.count < LEAST_VALUES or objective(training) != "plain":
        return None
    seen = jumps(loss)
    if len(seen) > max(2.0, OFTEN * len(loss)):
        return None
    begin = int(loss.steps[int(EARLY * len(loss))])
    gain = max(found.start - found.best, 0.0)
    spikes = [jump for jump in seen if jump.recovered and jump.step >= begin and jump.peak - jump.before > GAINED * gain]
    if not spikes:
        return None
    costs = [_way_back(loss, spike) for spike in spikes]
    dear = sum(costs) >= max(FEWEST, COST * len(loss))
    evidence = tuple(
        _evidence(training, spike, cost) for spike, cost in sorted(zip(spikes, costs, strict=True), key=lambda pair: -pair[0].peak)[:3]
    )
    return Detection(0.9, evidence, severity=None if dear else "advice")


def _way_back(loss: Series, spike: Jump) -> int:
    """Count the values from the spike until the smoothed loss is back among the values before it."""
    smooth = rolling_median(loss.finite(), 3)
    at = int(np.searchsorted(smooth.steps, spike.step))
    earlier = smooth.values[max(0, at - BEFORE) : at]
    usual = max(spike.before, float(np.quantile(earlier, 0.9))) if len(earlier) else spike.before
    later = smooth.values[at:]
    back = np.flatnonzero(later <= usual)
    return int(back[0]) if len(back) else len(later)


def _evidence(training: Training, spike: Jump, cost: int) -> Evidence:
    peak = "infinite" if math.isinf(spike.peak) else f"{spike.peak:.4g}"
    note = "back with the next value" if cost <= 1 else f"back after {cost} values"
    norms = training.signals.get("grad_norm", Series.of([]))
    at = np.flatnonzero(norms.steps == spike.step)
    if len(at):
        usual = float(np.nanmedian(norms.values))
        note += f"; gradient norm {norms.values[at[0]]:.3g} there, {usual:.3g} usually"
    return Evidence("loss", (spike.step, spike.step), f"{spike.before:.4g} to {peak}", "no jump", note)


def _run(spike: dict[int, float], base: list[float] | None = None, **facts: object) -> Training:
    values = list(base or [3.0 * 0.97**i + 1.0 + 0.01 * (i % 3) for i in range(100)])
    for at, value in spike.items():
        values[at] = value
    return Training(signals={"loss": Series.of(values)}, facts=dict(facts))


_COSTLY = {40 + i: 9.4 * 0.87**i for i in range(14)}

FAULT = Fault(
    code="TRF007",
    slug="loss-spike",
    title="The loss spikes",
    detect=detect,
    needs=("loss",),
    fix="Clip the gradient norm near its usual size, and look at the batch of that step.",
    severity="warning",
    examples=(
        Example("sick", _run({50: 125.0}), "one batch explodes, back at once"),
        Example("sick", _run(_COSTLY), "the way back takes a tenth of the run"),
        Example("sick", _run({30: math.inf, 60: 20.0}), "an infinite value, and a second spike"),
        Example("healthy", _run({}), "a smooth fall"),
        Example("healthy", _run({50: 1.9}), "a batch a little harder"),
        Example("look-alike", _run({1: 9.0, 2: 7.0}), "the hump of a warm-up"),
        Example("look-alike", _run(dict.fromkeys(range(10, 100, 9), 9.0)), "noise that throws such values all the time"),
        Example("look-alike", _run({50: 125.0}, log_words=["loss", "gan"]), "a generative pair"),
        Example("look-alike", _run({50: 0.03}, [4.0, 2.0, 1.0, 0.5, 0.2, 0.1, *[0.01] * 94]), "a jump near zero"),
    ),
)
