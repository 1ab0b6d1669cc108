"""One input gives the answer away: it is the label in other clothes.

What you see
------------
A nearly perfect score within the first steps, on validation data as well, and a useless model where that input is not known yet.

Why it happens
--------------
The target, or a code, a date or a sum made of it, is left among the inputs; it is filled in after the fact, in training and validation
alike.

How it is told apart
--------------------
A tree of one feature tells the classes of held-out rows. That feature must also have a gap between the classes that is wider than
the spread within each, as a copy of the label has and a threshold on a measured amount has not; and all the other features together must
tell less. An easy task is easy by several features.

What to do
----------
Ask for each such input whether it is known at the time of the prediction; drop it if not, and train again.

When this is wrong
------------------
A task whose answer really stands in one input, with others that mean nothing.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Gap between classes over the spread within: thresholds on amounts have 0 to .12, a label with a tenth of noise .5 to 3, with a twentieth
# 14 and more (measured on nine made tables).
THRESHOLD, COPY = 0.5, 2.0
REST, EASY = 0.9, 0.97  # score of all other features, from which on the task is easy without it
LEAST_ROWS, FEW = 100, 3


def detect(training: Training) -> Detection | None:
    """Look for a feature that tells the classes with a gap between them, and for what is told without it."""
    facts = training.experiment("look")
    alone = facts.get("alone") or []
    apart, rest = facts.get("apart"), facts.get("rest")
    if not 0 < len(alone) <= FEW or apart is None or rest is None or int(facts.get("rows") or 0) < LEAST_ROWS:
        return None
    strength = 0.93 * slope(float(apart), THRESHOLD, COPY) * slope(-float(rest), -EASY, -REST)
    if not strength > 0:
        return None
    names = ", ".join(str(each) for each in alone)
    note = f"input {names}, counted from 0; the gap between classes is {float(apart):.1f} times their spread"
    seen = Evidence("look", (0, 0), f"{len(alone)} of the inputs alone tells 98% of the rows", "none", note)
    return Detection(strength, (seen, Evidence("look", (0, 0), f"{float(rest):.0%} without", "as many", "all other inputs together")))


def _run(alone: list[int], apart: float | None = None, rest: float | None = None, rows: int = 600) -> Training:
    facts: dict[str, Any] = {"rows": rows, "kind": "classes", "alone": alone, "apart": apart, "rest": rest, "inputs": []}
    return Training(signals={"loss": Series.of([0.7, 0.01])}, experiments={"look": Experiment("look", "done", 0.5, facts)})


FAULT = Fault(
    code="DAT006",
    slug="leaky-feature",
    title="One input gives the answer away",
    detect=detect,
    needs=("look",),
    fix="Drop the input, or show that it is known at the time of the prediction.",
    severity="warning",
    explains=("val-better-than-train", "plateau-then-drop"),
    examples=(
        Example("sick", _run([4], 12.0, 0.71), "the label with some noise"),
        Example("sick", _run([4, 5], 1e6, 0.55), "the label and a code of it"),
        Example("healthy", _run([]), "no feature tells it alone"),
        Example("healthy", _run([0], 8.0, 1.0), "an easy task"),
        Example("look-alike", _run([0], 0.02, 0.55), "a threshold on an amount"),
        Example("look-alike", _run([0], 9.0, 0.6, rows=50), "too few rows"),
        Example("known miss", _run([4], 1.2, 0.7), "a leak with much noise"),
    ),
    decides_with=("look",),
)
