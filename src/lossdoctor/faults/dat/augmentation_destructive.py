"""Augmentation destroys what the label says.

What you see
------------
The training loss stays high, far above the validation loss, or near guessing; without augmentation the same network learns well.

Why it happens
--------------
The change is too strong (noise that drowns the input, crops that miss the object, erasing of nearly all of it), or it changes the answer:
a turned 6 is a 9, a mirrored arrow points the other way.

How it is told apart
--------------------
The part of the data set that draws is switched off, on a copy; where a script changes its batches itself, the data set's own examples are
plain. A small reference model is taught by rows with augmentation and another by rows without, and both are asked on rows held
out. Labels without meaning or with noise are as hard to learn either way; inputs that are only scaled or shifted are as easy. Useful
augmentation costs the reference a part of what is above chance, a destructive one most of it.

What to do
----------
Look at augmented examples beside their labels, and weaken what changes the answer: lower its strength or its probability.

When this is wrong
------------------
Where the plain rows come from validation, they are other rows: a training set that is really harder looks alike, so it is told less surely.
"""

from __future__ import annotations

import math
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

ROOM, ERRORS = 0.2, 4.0  # above chance that plain rows must be told, and in standard errors (starting values)
# Share of what is above chance that augmentation takes away, of 600 digits: .03 to .10 for shifts, flips and turns, .26 for noise of 2.7
# spreads, .45 and .63 where all but a ninth and a sixteenth is erased, .89 and more for noise of 5 spreads (measured).
COSTS, DESTROYS = 0.4, 0.6
APART = 0.8  # area under the curve of a classifier between both sides, where the plain rows are other rows (starting value)
SURE, LESS_SURE = 0.93, 0.85


def detect(training: Training) -> Detection | None:
    """Compare what a reference learns of rows with augmentation and without."""
    facts = training.experiment("augmentation")
    plain, augmented, onto, chance, error = (_number(facts.get(name)) for name in ("plain", "augmented", "onto", "chance", "error"))
    room = plain - chance
    if not room > max(ROOM, ERRORS * error):
        return None
    lost = 1.0 - (max(augmented, onto) - chance) / room
    elsewhere = facts.get("source") == "validation"
    if elsewhere and not _number(facts.get("distance")) > APART:
        return None
    strength = (LESS_SURE if elsewhere else SURE) * slope(lost, COSTS, DESTROYS)
    if not strength > 0:
        return None
    where = {"switched": f"with {facts.get('what')} off", "data set": "as the data set gives them"}.get(
        str(facts.get("source")), "validated"
    )
    note = f"by a reference model, of rows held out {where}; chance is {chance:.0%}"
    seen = f"{max(augmented, onto):.0%} are told right after learning from augmented rows"
    return Detection(strength, (Evidence("augmentation", (0, training.steps), seen, f"about {plain:.0%}", note),))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _run(plain: float, augmented: float, onto: float | None = None, source: str = "switched", distance: float = 0.9) -> Training:
    facts = {"source": source, "what": "transform", "rows": 600, "classes": 10, "chance": 0.1, "error": 0.02, "distance": distance}
    scores = {"plain": plain, "augmented": augmented, "onto": augmented if onto is None else onto}
    done = {"augmentation": Experiment("augmentation", "done", 3.0, facts | scores)}
    return Training(signals={"loss": Series.of([2.3, 2.2])}, experiments=done)


FAULT = Fault(
    code="DAT010",
    slug="augmentation-destructive",
    title="Augmentation destroys what the label says",
    detect=detect,
    needs=("augmentation",),
    fix="Weaken the augmentation: lower its strength or probability, and drop what changes the answer; look at some augmented examples.",
    severity="warning",
    explains=(
        "val-better-than-train",
        "loss-flat",
        "underfitting",
        "labels-meaningless",
        "label-noise",
        "over-regularised",
        "model-too-small",
    ),
    examples=(
        Example("sick", _run(0.9, 0.15), "noise drowns the inputs"),
        Example("sick", _run(0.85, 0.2, 0.25, source="data set"), "the script erases most of each batch"),
        Example("healthy", _run(0.9, 0.75, 0.8), "crops and flips"),
        Example("healthy", _run(0.9, 0.45, 0.85), "hard to tell, and good to learn from"),
        Example("look-alike", _run(0.12, 0.1), "labels without meaning: nothing is learnt either way"),
        Example("look-alike", _run(0.9, 0.2, source="validation", distance=0.5), "labels shuffled in training alone: the inputs are alike"),
        Example("look-alike", _run(0.9, 0.88, 0.2, source="validation"), "prepared in another way, and as easy"),
        Example("known miss", _run(0.9, 0.55, 0.5), "a third of the answers are changed"),
    ),
    plants=(
        Plant(
            "middle",
            "loop",
            r"output = model\(batch_x\)\n        loss = criterion\(output, batch_y\)",
            "output = model(batch_x + 8 * batch_x.std() * torch.randn_like(batch_x))\n        loss = criterion(output, batch_y)",
            kinds=("classifier",),
        ),
        Plant(
            "severe",
            "loop",
            r"output = model\(batch_x\)\n        loss = criterion\(output, batch_y\)",
            "output = model(batch_x + 30 * batch_x.std() * torch.randn_like(batch_x))\n        loss = criterion(output, batch_y)",
            kinds=("classifier",),
        ),
    ),
    decides_with=("augmentation",),
)
