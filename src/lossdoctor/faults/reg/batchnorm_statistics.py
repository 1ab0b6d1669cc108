"""Batch norm's statistics mislead: what it uses in evaluation is not what the data have.

What you see
------------
Training goes well, and the same model in evaluation mode is far worse, on the training rows themselves; validation jumps from pass to pass.

Why it happens
--------------
The running mean and variance follow too slowly (`momentum=0.01` where 0.99 was meant to be kept, few steps) or come from batches of one
or two rows; or rows of two kinds pass through one layer in turn.

How it is told apart
--------------------
The trained model is asked for captured training batches three times, dropout off: with the running statistics, with those of each
batch, and with running statistics gathered anew over the batches. A loss that is far higher with the running ones, and not with fresh ones,
comes from them alone. Dropout, other data and other preparation are the same in all three. Passes of validation must be worse as well,
since statistics lag behind for some steps in every run.

What to do
----------
Leave `momentum` at 0.1, take batches of 16 rows and more, or use GroupNorm or LayerNorm; gather the statistics anew before validating.

When this is wrong
------------------
A run whose rate is so high that its statistics never come to rest: a lower rate mends both.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.strength import slope

# Loss with running statistics over that with the batch's own (field guide, row 67: half as much again; the rest are starting values).
LITTLE, MUCH = 1.5, 2.5
MENDED = 0.4  # share of the gap that may stay with fresh statistics
TINY = 4  # rows of a batch that no statistics can be gathered from
WORSE = 1.3  # validation loss over training loss, in all late passes
LEAST_STEPS = 100


def detect(training: Training) -> Detection | None:
    """Compare the losses by the statistics used, and look whether validation suffers."""
    facts = training.experiment("norms")
    if training.steps < LEAST_STEPS:
        raise SignalMissing("norms", "a longer run: statistics lag behind in the first steps")
    running, own, fresh = (facts.get(name) for name in ("running", "own", "fresh"))
    if running is None or own is None or fresh is None or not float(own) > 0:
        return None
    running, own, fresh = float(running), float(own), float(fresh)
    tiny = float(facts.get("rows") or TINY + 1) <= TINY
    if not running > own or (not tiny and not fresh - own < MENDED * (running - own)) or not _suffers(training):
        return None
    strength = 0.92 * slope(running / own, LITTLE, MUCH)
    if not strength > 0:
        return None
    note = f"training rows; {fresh:.3g} with statistics gathered anew, momentum {facts.get('momentum')}, batches of {facts.get('rows'):g}"
    seen = Evidence("norms", (0, training.steps), f"loss {running:.3g} with running statistics", f"{own:.3g} as with the batch's own", note)
    return Detection(strength, (seen,))


def _suffers(training: Training) -> bool:
    losses = [float(row["loss"]) for row in training.rows.get("validation", []) if row.get("loss") is not None]
    trained = training.signals.get("loss", Series.of([])).finite()
    if not losses:
        return True
    end = float(median(trained.values[-max(1, len(trained) // 10) :].tolist())) if len(trained) else 0.0
    return min(losses[len(losses) // 2 :]) > WORSE * end


def _run(running: float, own: float, fresh: float, held: float = 2.0, rows: float = 32.0, steps: int = 300) -> Training:
    facts: dict[str, Any] = {"layers": 3, "rows": rows, "momentum": 0.001, "running": running, "own": own, "fresh": fresh}
    passes = [Row(step, {"loss": held, "rows": 300}) for step in (100, 200, 300)]
    return Training(
        signals={"loss": Series.of([2.3] * 10 + [own] * (steps - 10))},
        rows={"validation": passes},
        experiments={"norms": Experiment("norms", "done", 0.2, facts)},
    )


# Averages that begin far off and hardly move.
_SLOW = (
    "initialise(model)\nfor norm in (each for each in model.modules() if isinstance(each, nn.BatchNorm2d)):\n"
    "    norm.momentum = 1e-5\n    norm.running_var.fill_(25.0)"
)


FAULT = Fault(
    code="REG004",
    slug="batchnorm-statistics",
    title="BatchNorm's batch or running statistics mislead",
    detect=detect,
    needs=("norms",),
    fix="Leave momentum at 0.1, take batches of 16 rows and more, or use GroupNorm; gather the statistics anew before validating.",
    severity="warning",
    explains=("overfitting", "validation-too-small"),
    examples=(
        Example("sick", _run(2.4, 0.2, 0.25), "statistics that never follow"),
        Example("sick", _run(1.8, 0.3, 1.2, rows=2.0), "batches of two"),
        Example("healthy", _run(0.21, 0.2, 0.2, held=0.3), "they fit"),
        Example("healthy", _run(0.3, 0.2, 0.2, held=0.22), "they lag a little"),
        Example("look-alike", _run(0.9, 0.2, 0.2, held=0.21), "they lag now, and validation is well"),
        Example("look-alike", _run(2.4, 0.2, 2.3), "fresh ones are as bad: evaluation mode differs in another way"),
        Example("known miss", _run(0.4, 0.2, 0.21), "twice the loss"),
    ),
    plants=(Plant("middle", "model", r"^initialise\(model\)$", _SLOW, kinds=("batchnorm",)),),
    treatment=Treatment("batchnorm_pass", {}, moves="validation", direction="down"),
    decides_with=("norms",),
)
