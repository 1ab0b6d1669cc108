"""The loss rewards being wrong: it gets smaller as the outputs move away from their targets.

What you see
------------
The loss falls below zero and on and on, and the score falls under chance.

Why it happens
--------------
A minus sign is missing (a likelihood is minimised) or stands where it should not (a distance is negated), or a score that should
be high is used as a loss.

How it is told apart
--------------------
The gradient of the loss says where it pulls each output; the targets say where it should go. The cosine of both is near 1 for
every sound loss and near -1 for a flipped one, whatever the sign of its value. A loss that is negative by its nature (a likelihood of a
density, a cosine) passes. Losses with weights for each row (returns, advantages), several losses or several optimisers are left alone.

What to do
----------
Negate the loss; or maximise with `maximize=True` in the optimiser.

When this is wrong
------------------
Outputs that are meant to be opposite to what they are compared with: distances beside similarities.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.strength import slope

# Cosine between the pull of the loss and the way to the targets: .2 to 1 for 16 sound losses at three scales of outputs, as much below zero
# when flipped (measured).
NOT_SURE, OPPOSITE = 0.2, 0.5


def detect(training: Training) -> Detection | None:
    """Look for a loss that pulls outputs away from their targets."""
    facts = training.experiment("objective")
    pull = facts.get("pull")
    if training.roles or pull is None or int(facts.get("others") or 0) or int(facts.get("calls") or 0) > 1:
        return None
    if training.fact("what") == "manual" or _moves_others(training) or _maximises(training):
        return None
    strength = 0.96 * slope(-float(pull), NOT_SURE, OPPOSITE)
    if not strength > 0:
        return None
    value = float(facts.get("loss") or 0.0)
    seen = f"outputs are pulled away from their targets, cosine {float(pull):+.2f}"
    return Detection(strength, (Evidence("objective", (0, 0), seen, "about +1", f"by the gradient of the loss, which is {value:.3g}"),))


def _moves_others(training: Training) -> bool:
    """Tell whether the optimiser moves what is no part of the model: an input that is made to fool it."""
    rows = training.rows.get("coverage", [])
    return bool(rows) and bool(rows[-1].get("held")) and rows[-1].get("held_elsewhere") == rows[-1].get("held")


def _maximises(training: Training) -> bool:
    groups = (training.fact("optimizer") or {}).get("groups") or [{}]
    return bool(groups[0].get("maximize"))


def _run(pull: float | None, **fields: Any) -> Training:
    facts = {"kind": "", "pull": pull, "loss": -1.1, "others": 0, "calls": 0, **fields}
    held = Row(0, {"held": 4, "held_elsewhere": 0})
    return Training(
        signals={"loss": Series.of([0.1, -9.0])},
        rows={"coverage": [held]},
        experiments={"objective": Experiment("objective", "done", 0.3, facts)},
    )


FAULT = Fault(
    code="LOS003",
    slug="loss-sign-flipped",
    title="The loss rewards being wrong",
    detect=detect,
    needs=("objective",),
    fix="Negate the loss, or build the optimiser with maximize=True.",
    explains=(
        "loss-diverged",
        "lr-too-high",
        "overfitting",
        "labels-meaningless",
        "loss-not-finite",
        "exploding-gradients",
        "model-too-small",
        "underfitting",
        "metric-wrong",
    ),
    examples=(
        Example("sick", _run(-0.9), "a likelihood is minimised"),
        Example("sick", _run(-0.7), "a distance is negated"),
        Example("healthy", _run(0.95), "outputs go to their targets"),
        Example("healthy", _run(0.9, loss=-2.0), "a negative loss by its nature"),
        Example("look-alike", _run(-0.9, others=1), "weights for each row: returns of a policy"),
        Example("look-alike", _run(-0.1), "neither way"),
        Example("known miss", _run(-0.9, calls=2), "one of two losses is negated"),
    ),
    plants=(
        Plant(
            "middle",
            "loop",
            r"^( +)loss = criterion\(output, batch_y\)$",
            r"\1loss = -criterion(output, batch_y)",
            kinds=("loader", "regression", "tokens"),
        ),
    ),
    treatment=Treatment("negate_loss", {}, moves="call_value", direction="down"),
    decides_with=("objective",),
)
