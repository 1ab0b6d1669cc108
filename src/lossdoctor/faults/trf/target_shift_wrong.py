"""The targets are the inputs themselves, or the ones two ahead, where the next one was meant.

What you see
------------
The loss falls to zero within an epoch although the text is not that predictable, and what is written is a repetition of the prompt
(targets not shifted); or the loss stays high and every other token is missing from what is written (shifted twice).

Why it happens
--------------
The slices of inputs and targets are the same, or a shift is done in the data as well as in the model or the loss.

How it is told apart
--------------------
The captured targets are compared with the captured inputs at every shift. Equal at no shift means that the model is asked for
what it is given, which is a task only where it cannot look at it: in a model whose outputs know no later inputs it is none.

What to do
----------
Give `tokens[:, :-1]` to the model and compare with `tokens[:, 1:]`, once.

When this is wrong
------------------
A model that is meant to predict two steps ahead looks shifted twice.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

SAME = 0.95  # share of equal pairs: denoising replaces 15 % of the inputs, so it stays below (starting value)
ABOVE_CHANCE = 0.3
CAUSAL = 1e-3  # as of causal-leak: outputs that later inputs do not reach


def detect(training: Training) -> Detection | None:
    """Look for a shift other than one at which targets and inputs are the same."""
    facts = training.experiment("tokens")
    shares = {int(shift): float(share) for shift, share in (facts.get("shifts") or {}).items() if share is not None}
    if not shares or facts.get("future") is None:
        return None
    best = max(shares, key=lambda shift: shares[shift])
    chance = float(facts.get("chance") or 0.0)
    if best == 1 or not shares[best] >= max(SAME, chance + ABOVE_CHANCE) or not float(facts["future"]) < CAUSAL:
        return None
    where = "the input at the same position" if best == 0 else f"the input {best} positions later"
    seen = Evidence("tokens", (0, 0), f"{shares[best]:.0%} of the targets are {where}", "the next input", "and the model looks back only")
    return Detection(0.97 if best == 0 else 0.85, (seen,))


def _run(shift: int, share: float, future: float = 0.0, chance: float = 0.06) -> Training:
    shares = {str(each): share if each == shift else chance for each in (-1, 0, 1, 2, 3)}
    facts = {"shifts": shares, "chance": chance, "future": future, "later": 4.0, "own": 2.0, "order": 0.1}
    return Training(signals={"loss": Series.of([3.2, 0.01])}, experiments={"tokens": Experiment("tokens", "done", 0.1, facts)})


FAULT = Fault(
    code="TRF006",
    slug="target-shift-wrong",
    title="Targets are shifted by another number than one",
    detect=detect,
    needs=("tokens",),
    fix="Compare the outputs for tokens[:, :-1] with tokens[:, 1:]; shift once, in one place.",
    explains=("memorisation-staircase", "val-better-than-train"),
    examples=(
        Example("sick", _run(0, 1.0), "targets are the inputs"),
        Example("sick", _run(2, 1.0), "shifted in the data and in the loss"),
        Example("healthy", _run(1, 1.0), "the next token"),
        Example("healthy", _run(0, 0.1), "tags that have nothing to do with the ids"),
        Example("look-alike", _run(0, 1.0, future=0.9), "an autoencoder of sequences, whose outputs see all of it"),
        Example("look-alike", _run(0, 0.85), "denoising"),
        Example("known miss", _run(0, 1.0, future=0.5), "not shifted and not causal: copied all the same"),
    ),
    decides_with=("tokens",),
)
