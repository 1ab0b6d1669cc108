"""Gradients grow layer by layer on the way down, before any rate has acted.

What you see
------------
NaN, or wild swings, from the first steps on; even a much lower rate only delays it, or the last layers then learn nothing.

Why it happens
--------------
Each layer multiplies the gradient by its weights. Weights that are too large, or the same recurrent weight used a hundred times, make the
product huge.

How it is told apart
--------------------
At the first step the gradient per weight of the first layers is compared with that of the last, and its size with that of the weights. A
rate that is too high starts with even gradients; missing resets grow over steps and not over layers; unscaled inputs raise the first
weight alone.

What to do
----------
Use normalisation or a smaller start (He, Glorot, orthogonal for recurrent weights), and clip the gradient norm.

When this is wrong
------------------
Normalisation without an epsilon over nearly constant features gives huge gradients of another origin.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.depth import flow
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# First over last gradient per weight at the start (field guide, row 31: above 70).
USUAL, GROWN = 30.0, 300.0
# Norm of all gradients at the first step; healthy runs of the bench start with .1 to 30 (starting values).
ORDINARY, HUGE = 50.0, 1000.0
LEARNT, FAILED = 0.5, 0.9


def detect(training: Training) -> Detection | None:
    """Weigh growth along depth and the size of the first gradient, where the run fails."""
    if training.roles or training.phase_of is not None:
        return None
    norms = training.series("grad_norms")
    found = flow(training)
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if found is None or seen is None:
        return None
    size = float(np.sqrt(np.nansum(np.square(norms.values[0]))))
    failing = 1.0 if seen.not_finite or seen.lost else slope(seen.level or 0.0, LEARNT, FAILED)
    ratio = found.ratio if np.isfinite(found.ratio) else float("inf")
    strength = ramp(ratio, USUAL, GROWN) * ramp(size if np.isfinite(size) else float("inf"), ORDINARY, HUGE) * failing
    if strength <= 0:
        return None
    depth = Evidence(
        "grad_norms", (found.step, found.step), f"{ratio:.1e}", "0.01 to 100", f"first over last of {found.weights} weights, per element"
    )
    whole = Evidence(
        "grad_norm", (found.step, found.step), f"{size:.2e}", f"below {ORDINARY:g}", "at the first step, before any rate has acted"
    )
    return Detection(strength, (depth, whole))


def _run(ratio: float, size: float, end: float) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    names = [f"{layer}.weight" for layer in range(8)]
    shape = np.array([ratio ** (1 - layer / 7) for layer in range(8)])
    norms = Series.of([list(shape * size / np.sqrt((shape**2).sum()))], [0], names)
    loss = Series.of([2.3 + (end * 2.3 - 2.3) * step / 59 for step in range(60)])
    described = [{"name": name, "shape": [4, 4], "dtype": "float32", "requires_grad": True, "role": "weight"} for name in names]
    return Training(signals={"loss": loss, "grad_norms": norms}, rows={"loss_call": [call]}, facts={"parameters": described})


FAULT = Fault(
    code="ARC010",
    slug="exploding-gradients",
    title="Gradients grow on the way down",
    detect=detect,
    needs=("loss", "grad_norms"),
    fix="Use normalisation or a smaller start (He, Glorot, orthogonal for recurrent weights), and clip the gradient norm.",
    severity="error",
    explains=(
        "loss-not-finite",
        "loss-diverged",
        "lr-too-high",
        "loss-spike",
        "loss-flat",
        "dead-units",
        "saturated-units",
        "fp16-overflow",
    ),
    examples=(
        Example("sick", _run(1e5, 1e6, 1.0), "a hundred thousand times larger at the bottom"),
        Example("sick", _run(5e3, 5e3, 2.0), "large, and the loss ends above guessing"),
        Example("healthy", _run(2.0, 3.0, 0.1), "even"),
        Example("healthy", _run(1e3, 20.0, 0.1), "uneven and small, learns"),
        Example("look-alike", _run(1.0, 1e4, 3.0), "large and even: the loss is summed, or the targets are large"),
        Example("look-alike", _run(1.5, 2.0, 5.0), "even at the start, runs away: the rate"),
    ),
    treatment=Treatment("clip", {"norm": 1.0}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "the product of weights is as large on any machine"),
    decides_with=("memorise",),
)
