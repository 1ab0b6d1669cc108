"""A recurrent layer runs over the batch as if it were time.

What you see
------------
The network does not get beyond guessing, or far less far than a simple model. No error is raised: both orders of axes are valid
shapes.

Why it happens
--------------
`nn.RNN`, `nn.LSTM` and `nn.GRU` take (time, batch, features) unless `batch_first=True`. Given (batch, time, features) they carry
their state from one example to the next.

How it is told apart
--------------------
The model holds a recurrent layer, its targets stand one for each entry of the first axis, and with dropout off an example's
output depends on the examples before it in the batch: on their inputs, or on how many there are. State that runs in one direction
reaches later examples only.

What to do
----------
Set `batch_first=True`, or transpose the first two axes before the layer and after it.

When this is wrong
------------------
A stream whose rows really follow one another, fed as one sequence, has its time on the first axis.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Series, Training

MOVED = 1e-3  # as of batch-mixing


def detect(training: Training) -> Detection | None:
    """Look for a recurrent model that mixes examples."""
    facts = training.experiment("mixing")
    others, unequal = float(facts.get("others") or 0.0), float(facts.get("unequal") or 0.0)
    if not facts.get("recurrent") or not facts.get("sure") or facts.get("related") or not max(others, unequal) > MOVED:
        return None
    if not facts.get("later_only") and not unequal > MOVED:
        return None  # mixed by something that knows no order
    how = "examples after it in the batch" if facts.get("later_only") else "other examples"
    seen = f"an example moves the outputs of {how} by {max(others, unequal):.2g} of their spread"
    note = f"the model holds a {facts['recurrent']}, and there is one target for each entry of the first axis"
    return Detection(0.96, (Evidence("mixing", (0, 0), seen, "0", note),))


def _run(others: float, unequal: float = 0.0, **fields: Any) -> Training:
    facts = {"rows": 50, "own": 1.0, "others": others, "unequal": unequal, "touched": 0.9, "later_only": True, "recurrent": "LSTM"}
    facts |= {"related": False, "sure": True, **fields}
    return Training(signals={"loss": Series.of([2.3, 2.3])}, experiments={"mixing": Experiment("mixing", "done", 0.1, facts)})


FAULT = Fault(
    code="SEQ002",
    slug="batch-time-swapped",
    title="Batch and time axes are swapped",
    detect=detect,
    needs=("mixing",),
    fix="Set batch_first=True in the recurrent layer, or transpose its input and output.",
    explains=("batch-mixing", "labels-meaningless", "model-too-small", "loss-flat", "underfitting", "overfitting"),
    examples=(
        Example("sick", _run(0.4), "state carried from example to example"),
        Example("sick", _run(0.0, 0.5), "what is read out is empty, the count of examples remains"),
        Example("healthy", _run(0.0), "batch first"),
        Example("healthy", _run(0.0, recurrent=None), "not recurrent"),
        Example("look-alike", _run(0.4, recurrent=None), "mixed by something else"),
        Example("look-alike", _run(0.4, sure=False), "time may really come first"),
        Example("look-alike", _run(0.4, later_only=False), "a softmax over the batch, behind a recurrent layer"),
        Example("known miss", _run(0.4, recurrent=None, later_only=True), "a recurrence written by hand"),
    ),
    plants=(Plant("middle", "model", r", batch_first=True", "", kinds=("sequences",)),),
    treatment=Treatment("batch_first", {}, moves="loss", direction="down"),
    decides_with=("mixing",),
)
