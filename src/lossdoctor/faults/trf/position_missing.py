"""The order of the tokens makes no difference: the model knows what came before, not in which order.

What you see
------------
The loss of a sequence model stays clearly above what others reach; sentences and their words in any order get the same answer.

Why it happens
--------------
Attention treats its inputs as a set. Position embeddings are not added, are all the same, or are overwritten.

How it is told apart
--------------------
The inputs before the last position are reversed, and exchanged for others, with dropout off. An output that answers to other
inputs, and not at all to another order of the same ones, has no sense of order. A model that looks at the last input alone
answers to neither.

What to do
----------
Add position embeddings to the token embeddings, or use rotary or relative positions in attention.

When this is wrong
------------------
Tasks in which order means nothing (sets, bags of words) are served well by such a model; they seldom have a target at each
position. Deep causal models without position embeddings learn the order from the mask, and are not named."""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

MOVED, STILL = 1e-2, 1e-5  # of the output's spread; models with positions answer to a new order by .09 to 2 (measured on nine models)


def detect(training: Training) -> Detection | None:
    """Compare how the last output answers to other inputs before it, and to another order of the same."""
    facts = training.experiment("tokens")
    past, order = facts.get("past"), facts.get("order")
    if past is None or order is None or not past > MOVED or not order < STILL:
        return None
    seen = f"the last output moves by {order:.1g} of its spread when the inputs before it are reversed"
    return Detection(0.9, (Evidence("tokens", (0, 0), seen, "clearly more", f"other inputs move it by {past:.2g}"),))


def _run(past: float, order: float) -> Training:
    facts = {"shifts": {"1": 1.0}, "chance": 0.1, "future": 0.0, "later": 4.0, "own": 4.0, "past": past, "order": order}
    return Training(signals={"loss": Series.of([3.2, 2.4])}, experiments={"tokens": Experiment("tokens", "done", 0.1, facts)})


FAULT = Fault(
    code="TRF005",
    slug="position-missing",
    title="Order of the tokens makes no difference",
    detect=detect,
    needs=("tokens",),
    fix="Give the model positions: add position embeddings, or use rotary or relative positions.",
    explains=("underfitting", "loss-flat"),
    examples=(
        Example("sick", _run(0.4, 1e-7), "attention without positions"),
        Example("sick", _run(2.0, 0.0), "a sum of embeddings"),
        Example("healthy", _run(0.4, 0.1), "positions are added"),
        Example("healthy", _run(3.0, 2.0), "recurrent"),
        Example("look-alike", _run(0.0, 0.0), "looks at the last token alone"),
        Example("look-alike", _run(1e-3, 1e-6), "hardly looks back"),
        Example("known miss", _run(0.4, 1e-3), "two causal layers without positions"),
    ),
    decides_with=("tokens",),
)
