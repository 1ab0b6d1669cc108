"""The inputs carry almost no variation: they are all alike, or were scaled down twice.

What you see
------------
The loss falls to what guessing gives and stays there, for a long time or for good; outputs are nearly the same for every example.

Why it happens
--------------
Pixels are divided by 255 after a transform that had divided them already; a mean and spread of raw pixels are taken off inputs that
were scaled before; a buffer is filled once, or never.

How it is told apart
--------------------
The spread of each feature over the captured rows is measured. Rows that are all the same carry
nothing. Where it is small, or small beside the mean, the captured batches are trained on twice, as they are and standardised. A fault is
a loss that stays high and falls far with standardised inputs: a model that normalises by itself, or small units that do no harm, show no
difference.

What to do
----------
Print mean and spread of one batch; scale once, with figures that belong to the unit that the inputs have at that place.

When this is wrong
------------------
Inputs that hardly vary by their nature, of which the rest is noise.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Loss with standardised inputs over the loss with them as they are, after 120 steps or fewer (starting values).
LITTLE, MUCH = 0.9, 0.75
POOR = 0.6  # loss as it is, over guessing or the start
LEAST_ROWS, LEAST_STEPS = 16, 30


def detect(training: Training) -> Detection | None:
    """Look for rows that are alike, or for a loss that only standardised inputs let fall."""
    facts = training.experiment("prepared")
    between, rows = facts.get("between"), int(facts.get("rows") or 0)
    if between is None or rows < LEAST_ROWS:
        return None
    if float(between) == 0.0:
        return Detection(0.97, (Evidence("prepared", (0, 0), f"all {rows} rows are the same", "rows that differ", "captured inputs"),))
    own, other, steps = facts.get("own"), facts.get("standardised"), int(facts.get("steps") or 0)
    whole = facts.get("guess") or facts.get("start")
    if own is None or other is None or whole is None or not float(whole) > 0 or steps < LEAST_STEPS or not float(own) > 0:
        return None
    strength = 0.95 * slope(-float(other) / float(own), -LITTLE, -MUCH)
    if not float(own) > POOR * float(whole) or not strength > 0:
        return None
    centre = float(facts.get("centre") or 0.0)
    seen = Evidence(
        "prepared", (0, 0), f"spread {float(between):.3g}, mean {centre:.3g}", "spread about 1, mean about 0", "of the features"
    )
    note = f"after {steps} steps, {float(other):.3g} with standardised inputs"
    return Detection(strength, (seen, Evidence("prepared", (0, steps), f"loss {float(own):.3g}", f"below {POOR * float(whole):.3g}", note)))


def _run(between: float, own: float | None = None, other: float | None = None, centre: float = 0.0, steps: int = 120) -> Training:
    facts: dict[str, Any] = {"rows": 800, "between": between, "centre": centre}
    if own is not None:
        facts |= {"own": own, "standardised": other, "start": 2.31, "guess": 2.29, "steps": steps}
    return Training(signals={"loss": Series.of([2.3, 2.3])}, experiments={"prepared": Experiment("prepared", "done", 0.5, facts)})


FAULT = Fault(
    code="DAT002",
    slug="inputs-constant",
    title="Inputs carry (almost) no variation, or are normalised twice",
    detect=detect,
    needs=("prepared",),
    fix="Print mean and spread of a batch, and scale once, with figures of the unit that the inputs have there.",
    explains=(
        "loss-flat",
        "underfitting",
        "labels-meaningless",
        "lr-too-low",
        "model-too-small",
        "too-few-epochs",
        "inputs-unscaled",
        "dead-units",
    ),
    examples=(
        Example("sick", _run(0.0), "all rows are the same"),
        Example("sick", _run(0.001, 2.29, 0.4), "divided twice"),
        Example("sick", _run(0.02, 2.3, 0.5, centre=2.0), "another unit's mean taken off"),
        Example("healthy", _run(0.9), "usual inputs"),
        Example("healthy", _run(0.06, 0.4, 0.3), "small, and learnt"),
        Example("look-alike", _run(0.01, 2.2, 2.15), "small, and another fault"),
        Example("look-alike", _run(0.001, 2.29, 0.4, steps=12), "too few steps to tell"),
        Example("known miss", _run(0.08, 1.3, 0.5), "learns slowly all the same"),
    ),
    decides_with=("prepared",),
)
