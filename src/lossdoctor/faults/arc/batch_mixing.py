"""The output for one example depends on the other examples of its batch.

What you see
------------
The loss does not fall below guessing, or training works and single examples at the end get other answers than in a batch. The score
changes with the batch size and with the order of the data.

Why it happens
--------------
A `view` or `reshape` moves entries from one example to another, a softmax, a mean or attention runs over the batch axis, or a
layer takes the batch for the sequence.

How it is told apart
--------------------
One example's input is exchanged, with dropout off and batch norm on fixed statistics; the outputs of all others must stay as they
were. And equal examples must get equal outputs. Targets, one for each entry of the first axis, show that it is the axis of the
examples. A model that is told how its examples are related (the edges of a graph) mixes them by design.

What to do
----------
Follow the shapes through `forward`: use `permute` where axes change places, `flatten(1)`, `dim=1` or `dim=-1`, `batch_first=True`.

When this is wrong
------------------
Models that compare the examples of a batch on purpose (attention between data points, minibatch discrimination) are named as well.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

MOVED = 1e-3  # of the output's spread; models that keep examples apart stay at 0 to 1e-6, mixing ones move by .1 and more (measured)
CERTAIN, UNSURE = 0.95, 0.6


def detect(training: Training) -> Detection | None:
    """Look for outputs that answer to another example's input, or differ between equal examples."""
    facts = training.experiment("mixing")
    others, unequal = float(facts.get("others") or 0.0), float(facts.get("unequal") or 0.0)
    if facts.get("related") or not max(others, unequal) > MOVED:
        return None
    evidence, unit = [], "of their spread"
    if others > MOVED:
        evidence.append(
            Evidence("mixing", (0, 0), f"outputs move by {others:.2g} {unit}", "0", "when another example's input is exchanged")
        )
    if unequal > MOVED:
        evidence.append(Evidence("mixing", (0, 0), f"outputs differ by {unequal:.2g} {unit}", "0", "where all examples are the same"))
    return Detection(CERTAIN if facts.get("sure") else UNSURE, tuple(evidence))


def _run(others: float, unequal: float = 0.0, **fields: Any) -> Training:
    facts = {"rows": 32, "own": 1.8, "others": others, "unequal": unequal, "touched": 0.9, "later_only": False, "recurrent": None}
    facts |= {"related": False, "sure": True, **fields}
    return Training(signals={"loss": Series.of([2.3, 2.2])}, experiments={"mixing": Experiment("mixing", "done", 0.1, facts)})


FAULT = Fault(
    code="ARC004",
    slug="batch-mixing",
    title="Examples of one batch influence each other",
    detect=detect,
    needs=("mixing",),
    fix="Keep the first axis apart: permute instead of view, flatten(1), dim=-1, batch_first=True.",
    explains=("labels-meaningless", "model-too-small", "loss-flat", "underfitting", "overfitting", "label-noise"),
    examples=(
        Example("sick", _run(0.6), "a view across examples"),
        Example("sick", _run(0.0, 0.5), "the place in the batch counts"),
        Example("healthy", _run(0.0), "kept apart"),
        Example("healthy", _run(2e-6), "sums in another order"),
        Example("look-alike", _run(0.6, related=True), "a graph"),
        Example("look-alike", _run(0.6, sure=False), "the first axis may be time: suspected"),
        Example("known miss", _run(0.6, sure=False, later_only=True), "a language model that swaps both axes"),
    ),
    decides_with=("mixing",),
)
