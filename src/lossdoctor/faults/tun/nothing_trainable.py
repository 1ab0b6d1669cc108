"""Nothing that the optimiser holds can learn: it is frozen, or not used.

What you see
------------
The loss stays where it starts; each epoch gives the same score to the last digit.

Why it happens
--------------
`requires_grad = False` was set on all parameters after the new head was made, or the names that should stay trainable match none; an
adapter was made and not put into the model.

How it is told apart
--------------------
At every look none of the optimiser's parameters has a gradient, and most of the model is frozen. A frozen backbone with a head that
learns has gradients at the head; an input or a prompt that is optimised through a frozen model has one itself. A loss that is cut
from the graph leaves a model that could learn.

What to do
----------
Print the names of the parameters with `requires_grad`; set it on the head or the adapters after freezing the rest, and put them on the
way that `forward` takes.

When this is wrong
------------------
A script that measures a frozen model and steps an optimiser for nothing.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Row, Series, Training

LEAST_STEPS = 3
MOST = 0.5  # share of the elements that are frozen


def detect(training: Training) -> Detection | None:
    """Look for an optimiser whose parameters never have a gradient, beside a frozen model."""
    rows = [row for row in training.table("coverage") if (row.get("held") or 0) > 0]
    if training.steps < LEAST_STEPS or not rows or training.roles:
        return None
    if any(row.get("held_with_gradient") for row in rows) or any(row.get("missed") for row in rows):
        return None
    last = rows[-1]
    frozen, able = int(last.get("frozen_elements") or 0), int(last.get("model_elements") or 0)
    if not frozen > MOST * (frozen + able):
        return None
    span = (rows[0].step, last.step)
    note = f"{frozen / (frozen + able):.1%} of the model's elements are frozen"
    seen = Evidence("coverage", span, f"0 of the {last['held']} parameters that the optimiser holds have a gradient", "all", note)
    return Detection(0.95, (seen,))


def _run(gradients: int, frozen: int = 9000, able: int = 0, held: int = 4, missed: int = 0) -> Training:
    row = {"held": held, "held_with_gradient": gradients, "frozen_elements": frozen, "model_elements": able, "missed": missed}
    return Training(signals={"loss": Series.of([2.3] * 10)}, rows={"coverage": [Row(step, row) for step in (0, 4, 8)]})


FAULT = Fault(
    code="TUN002",
    slug="nothing-trainable",
    title="Adapter or backbone not trainable",
    detect=detect,
    needs=("coverage",),
    fix="Set requires_grad on the head or the adapters after freezing the rest, and use them in forward.",
    explains=("step-missing", "loss-flat", "underfitting", "labels-meaningless", "lr-too-low", "model-too-small", "loss-detached"),
    examples=(
        Example("sick", _run(0), "all frozen"),
        Example("sick", _run(0, able=300), "adapters that are not used"),
        Example("healthy", _run(4, frozen=0, able=9000), "all learn"),
        Example("healthy", _run(2, able=300), "a head that learns"),
        Example("look-alike", _run(0, frozen=0, able=9000), "a loss that is cut off"),
        Example("look-alike", _run(0, missed=2), "the optimiser holds another model's"),
        Example("known miss", _run(1, able=300), "one bias learns"),
    ),
    treatment=Treatment("thaw", {}, moves="loss", direction="down"),
)
