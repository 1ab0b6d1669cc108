"""Gradients of earlier steps are still there when the next backward adds to them.

What you see
------------
The loss falls at first, then swings or climbs, although the rate looks sensible; the gradient norm grows over the run. Dividing
the rate makes it slower and does not cure it.

Why it happens
--------------
`backward()` adds to `.grad`; it does not replace it. Without `optimizer.zero_grad()` between two steps each step follows the sum
of all gradients since the start, most of them taken at weights that are long gone.

How it is told apart
--------------------
At each backward it is looked at whether the gradients that the optimiser holds are None or zero. A fault is a run in which no
backward since the last step found them so, step after step. Accumulation over micro-batches resets them once a step and reads 0,
wherever in the loop it happens. Momentum and a high rate make steps grow as well, and reset their gradients.

What to do
----------
Call `optimizer.zero_grad()` once before the backward of each step (with accumulation: before the first backward of the group).

When this is wrong
------------------
A loop that decays `.grad` by hand instead of clearing it, as a home-made momentum, reads like this fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Series, Training

# Fewer steps than this cannot tell a habit of the loop from its beginning (starting value).
ENOUGH_STEPS = 5
# A loop that resets every second step or more often is something else, or harmless (starting value). The share itself is the
# strength: forgotten resets measured 1.0 and healthy loops 0 (field guide, "Measured").
LEAST_SHARE = 0.5


def detect(training: Training) -> Detection | None:
    """Measure the share of steps whose gradients were never reset since the step before."""
    kept = _after_first_step(training)
    if len(kept) < ENOUGH_STEPS:
        return None
    share = float(np.mean(kept.values))
    if share < LEAST_SHARE:
        return None
    span = (int(kept.steps[0]), int(kept.steps[-1]))
    seen = Evidence("not_reset", span, round(share, 3), 0.0, f"{share:.0%} of {len(kept)} steps added to gradients of earlier steps")
    return Detection(share, (seen, *_growth(training)), where=training.where("backward"))


def _after_first_step(training: Training) -> Series:
    """Keep the steps that a backward preceded, without the first: nothing is there to be reset before it."""
    series = training.series("not_reset").finite()
    backwards = training.signals.get("backwards")
    if backwards is not None:
        without = backwards.steps[backwards.values == 0]
        keep = ~np.isin(series.steps, without)
        series = Series(series.steps[keep], series.values[keep])
    return Series(series.steps[1:], series.values[1:])


def _growth(training: Training) -> tuple[Evidence, ...]:
    norms = training.signals.get("grad_norm", Series.of([])).finite()
    if len(norms) < ENOUGH_STEPS or norms.first <= 0 or norms.last <= norms.first:
        return ()
    span = (int(norms.steps[0]), int(norms.steps[-1]))
    return (Evidence("grad_norm", span, f"{norms.first:.3g} to {norms.last:.3g}", "no growth", "the sum of old gradients grows"),)


def _run(not_reset: Sequence[float], backwards: float = 1.0, **signals: Sequence[float]) -> Training:
    recorded = {"not_reset": not_reset, "backwards": [backwards] * len(not_reset), **signals}
    return Training(signals={name: Series.of(values) for name, values in recorded.items()})


FAULT = Fault(
    code="LOP001",
    slug="zero-grad-missing",
    title="Gradients pile up",
    detect=detect,
    needs=("not_reset",),
    fix="Call optimizer.zero_grad() once per step, before backward.",
    severity="error",
    explains=(
        "lr-too-high",
        "lr-too-low",
        "loss-not-finite",
        "exploding-gradients",
        "dead-units",
        "saturated-units",
        "clipping-too-tight",
        "fp16-overflow",
        "loss-spike",
        "loss-flat",
        "loss-diverged",
        "loss-noisy",
        "underfitting",
    ),
    examples=(
        Example("sick", _run([0, 1, 1, 1, 1, 1, 1, 1]), "never reset after the first step"),
        Example("sick", _run([1] * 9, grad_norm=[1, 2, 3, 4, 5, 6, 7, 8, 9]), "never reset, norm grows"),
        Example("sick", _run([0] + [1] * 19 + [0] + [1] * 19), "reset once per epoch"),
        Example("healthy", _run([0] * 8), "reset at every step"),
        Example("healthy", _run([1, 0, 0, 0, 0, 0, 0, 0]), "reset at the end of the loop body"),
        Example("look-alike", _run([0] * 8, backwards=4.0), "accumulation over four micro-batches"),
        Example("look-alike", _run([0] * 8, grad_norm=[1, 2, 4, 8, 16, 32, 64, 128]), "rate too high: norm grows, gradients reset"),
        Example("known miss", _run([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]), "reset at every second step only"),
    ),
    plants=(
        Plant("middle", "loop", r"optimizer\.zero_grad\(\)", "pass"),
        Plant(
            "mild",
            "loop",
            r"optimizer\.zero_grad\(\)",
            "pass",
            also=(("loop", r"model\.train\(\)", "model.train(); optimizer.zero_grad()"),),
        ),
    ),
    treatment=Treatment("clear_gradients", {}, moves="loss", direction="down"),
)
