"""Gradients shrink layer by layer on the way down, so that the first layers learn nothing.

What you see
------------
A deep model whose loss stays near what guessing gives, or falls as if only its last layers were there.

Why it happens
--------------
Each layer multiplies the gradient by its slope and weights. Sigmoids (at most 1/4), small weights or many layers without shortcuts make
the product tiny.

How it is told apart
--------------------
At the first step, before any rate has acted, the gradient per weight of the first layers is compared with that of the last. A rate
that is too low leaves the ratio alone; dead units show gradients of exactly zero; clipping scales all layers alike. Adam hides the size
of a gradient and not its noise, so the loss must fail as well.

What to do
----------
Add shortcuts or normalisation between layers, use rectified units with He initialisation, or fewer layers.

When this is wrong
------------------
A pretrained body with a fresh head starts with small gradients below the head, and learns.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.depth import flow
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# First over last gradient per weight (field guide, row 30: below 1e-3).
USUAL, SHRUNK = 1e-2, 1e-4
# Training loss over guessing at the end (starting values).
LEARNT, FAILED = 0.5, 0.85


def detect(training: Training) -> Detection | None:
    """Weigh the gradients of the first layers against those of the last at the first step, where the loss does not come down."""
    if training.roles or training.phase_of is not None:
        return None
    training.series("grad_norms")
    found = flow(training)
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if found is None or seen is None or seen.level is None or found.first <= 0:
        return None
    strength = ramp(found.ratio, USUAL, SHRUNK) * slope(seen.level, LEARNT, FAILED)
    if strength <= 0:
        return None
    ratio = Evidence(
        "grad_norms",
        (found.step, found.step),
        f"{found.ratio:.1e}",
        "0.01 to 100",
        f"first over last of {found.weights} weights, per element",
    )
    end = Evidence("loss", (0, max(training.steps - 1, 0)), f"ends at {seen.level:.2f} of guessing", f"below {LEARNT}")
    return Detection(strength, (ratio, end))


def _run(ratio: float, end: float) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    names = [f"{layer}.weight" for layer in range(8)]
    norms = Series.of([[ratio ** (1 - layer / 7) for layer in range(8)]], [0], names)
    loss = Series.of([2.3 + (end * 2.3 - 2.3) * step / 59 for step in range(60)])
    described = [{"name": name, "shape": [4, 4], "dtype": "float32", "requires_grad": True, "role": "weight"} for name in names]
    return Training(signals={"loss": loss, "grad_norms": norms}, rows={"loss_call": [call]}, facts={"parameters": described})


FAULT = Fault(
    code="ARC009",
    slug="vanishing-gradients",
    title="Gradients shrink on the way down",
    detect=detect,
    needs=("loss", "grad_norms"),
    fix="Add shortcuts or normalisation between layers, use rectified units with He initialisation, or fewer layers.",
    severity="error",
    explains=("loss-flat", "underfitting", "lr-too-low", "too-few-epochs"),
    examples=(
        Example("sick", _run(1e-7, 1.0), "ten million times smaller at the bottom"),
        Example("sick", _run(1e-5, 0.95), "a hundred thousand times smaller"),
        Example("healthy", _run(0.5, 0.1), "even"),
        Example("healthy", _run(1e-5, 0.1), "small at the bottom, and learns"),
        Example("look-alike", _run(0.8, 1.0), "fails with even gradients: rate or labels"),
        Example("look-alike", _run(1e4, 1.0), "grows on the way down"),
    ),
    treatment=Treatment("reinitialise", {}, moves="grad_norms", direction="up"),
    bigger_machine=BiggerMachine("no", "the product of slopes is as small on any machine"),
    decides_with=("memorise",),
)
