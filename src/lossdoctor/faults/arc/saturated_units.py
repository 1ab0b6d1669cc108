"""Sigmoid or tanh units sit at their ends, where their slope is next to zero.

What you see
------------
The loss stays near what guessing gives from the start, or falls far more slowly than it should; gradients of the layers below are
tiny, though not exactly zero.

Why it happens
--------------
Inputs to a sigmoid or tanh that are many units away from zero give outputs of 0, 1 or -1 whatever the example is. Large weights at the
start, inputs that are not scaled, or a rate that threw the weights out put them there.

How it is told apart
--------------------
The share of a layer's outputs beyond .99 of their range is measured at the first steps and along the run. Half of them at the first
step is a matter of the start or of the inputs; units that saturate after a jump are a consequence of the rate. Gates that learn to be
open or shut saturate late, in runs whose loss is low. Standardised inputs that cure the first loss put the blame on the inputs.

What to do
----------
Start with smaller weights (Glorot), scale the inputs, or use units that do not saturate.

When this is wrong
------------------
A sigmoid at the very output of a well-fitted classifier saturates because it is right.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import slope

# Share of saturated outputs in a layer (field guide, row 29: more than half).
FREE, STUCK = 0.4, 0.75
# Training loss over guessing at the end (starting values).
LEARNT, FAILED = 0.4, 0.8
EARLY = 3  # samples that count as the start


def detect(training: Training) -> Detection | None:
    """Weigh the worst hidden layer's saturated share at the start, where the loss does not come down."""
    if training.roles:
        return None
    rows = training.table("activations")
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None or seen.level is None:
        return None
    first, name = max(_worst(row) for row in rows[:EARLY])
    last, _ = _worst(rows[-1])
    strength = slope(first, FREE, STUCK) * slope(last, FREE / 2, FREE) * slope(seen.level, LEARNT, FAILED)
    if strength <= 0:
        return None
    span = (rows[0].step, rows[-1].step)
    layer = Evidence(
        "activations", span, f"{first:.0%} at first, {last:.0%} at last", f"below {FREE:.0%}", f"outputs of {name} at an end of their range"
    )
    end = Evidence("loss", (0, max(training.steps - 1, 0)), f"ends at {seen.level:.2f} of guessing", f"below {LEARNT}")
    return Detection(strength, (layer, end))


def _worst(row: Row) -> tuple[float, str]:
    layers = row.get("layers") or []
    shares = [(float(layer["saturated"]), str(layer.get("name", ""))) for layer in layers if layer.get("saturated") is not None]
    return max(shares, default=(0.0, ""))


def _run(first: float, last: float, end: float) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    layers = [
        Row(step, {"layers": [{"name": "1", "kind": "tanh", "saturated": share, "units": 64}]}) for step, share in ((0, first), (59, last))
    ]
    loss = Series.of([2.3 + (end * 2.3 - 2.3) * step / 59 for step in range(60)])
    return Training(signals={"loss": loss}, rows={"loss_call": [call], "activations": layers})


FAULT = Fault(
    code="ARC008",
    slug="saturated-units",
    title="Sigmoid or tanh units stuck at their ends",
    detect=detect,
    needs=("loss", "activations"),
    fix="Start with smaller weights (Glorot), scale the inputs, or use units that do not saturate.",
    severity="error",
    explains=("loss-flat", "underfitting", "vanishing-gradients", "lr-too-low", "too-few-epochs"),
    examples=(
        Example("sick", _run(0.95, 0.9, 1.0), "stuck from the start"),
        Example("sick", _run(0.8, 0.85, 0.9), "most outputs at an end"),
        Example("healthy", _run(0.02, 0.1, 0.1), "free"),
        Example("healthy", _run(0.05, 0.8, 0.05), "gates that learnt to shut"),
        Example("look-alike", _run(0.9, 0.05, 0.9), "came free: something else keeps the loss up"),
        Example("look-alike", _run(0.1, 0.1, 1.0), "fails with free units"),
    ),
    plants=(
        Plant(
            "mild",
            "model",
            r"^initialise\(model\)$",
            "initialise(model)\nfor parameter in model.body.parameters():\n    parameter.data.mul_(12.0)",
            kinds=("tanh",),
        ),
        Plant(
            "middle",
            "model",
            r"^initialise\(model\)$",
            "initialise(model)\nfor parameter in model.body.parameters():\n    parameter.data.mul_(40.0)",
            kinds=("tanh",),
        ),
    ),
    treatment=Treatment("reinitialise", {}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "units at their ends stay there on any machine"),
    decides_with=("standardise", "memorise"),
)
