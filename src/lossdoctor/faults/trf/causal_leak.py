"""A model that predicts the next input sees it: nothing hides the future.

What you see
------------
The loss falls far below what the text allows, on held-out data as well, in few steps. What the model writes by itself is nonsense.

Why it happens
--------------
Attention has no causal mask, or one that is wrong (transposed, of the wrong kind, not handed on); a convolution pads on both
sides; a recurrent network runs in both directions. At each position the model copies the answer from the next one.

How it is told apart
--------------------
The targets are the inputs, moved by one: so nothing after a position may reach its output. After a position all inputs are
exchanged for those of other examples, and the outputs up to it are compared, with dropout off. In a causal model they stay the same
to the last bits; in a leaking one they move.

What to do
----------
Mask attention with `is_causal=True` or a square subsequent mask, pad convolutions on the left only, run recurrent layers forwards
only.

When this is wrong
------------------
A model that is meant to fill in what it sees on both sides has other targets than the next input, so it is not asked.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Series, Training

NEXT = 0.9  # share of targets that are the next input; padding and ends of documents take some (starting value)
ABOVE_CHANCE = 0.3
MOVED = 1e-3  # change in spreads of the output: causal models stay at 0 to 1e-6, leaking ones move by .1 to 5 (measured on nine models)


def detect(training: Training) -> Detection | None:
    """Look whether outputs know later inputs where the target is the next one."""
    facts = training.experiment("tokens")
    share = float((facts.get("shifts") or {}).get("1", 0.0))
    moved = float(facts.get("future") or 0.0)
    if share < NEXT or share < float(facts.get("chance") or 0.0) + ABOVE_CHANCE or not MOVED <= moved < float("inf"):
        return None
    seen = Evidence(
        "tokens", (0, 0), f"outputs move by {moved:.2g} of their spread", "0", "when only inputs after their position are exchanged"
    )
    aim = Evidence("tokens", (0, 0), f"{share:.0%} of the targets are the next input", "known", "so the answer stands one position ahead")
    return Detection(0.97, (seen, aim))


def _run(share: float, future: float, chance: float = 0.06) -> Training:
    facts = {"shifts": {"0": chance, "1": share, "2": chance}, "chance": chance, "future": future, "later": 4.0, "own": 4.0, "order": 0.1}
    return Training(signals={"loss": Series.of([3.2, 0.4])}, experiments={"tokens": Experiment("tokens", "done", 0.1, facts)})


FAULT = Fault(
    code="TRF003",
    slug="causal-leak",
    title="The model sees the token it predicts",
    detect=detect,
    needs=("tokens",),
    fix="Hide the future: a causal mask in attention, padding on the left only, no backward direction.",
    explains=("val-better-than-train", "plateau-then-drop"),
    examples=(
        Example("sick", _run(1.0, 0.65), "attention without a mask"),
        Example("sick", _run(0.93, 0.02), "a little through one layer, some targets padded"),
        Example("healthy", _run(1.0, 0.0), "causal"),
        Example("healthy", _run(1.0, 2e-6), "causal, sums in another order"),
        Example("look-alike", _run(0.05, 0.9), "a tagger, which may look ahead"),
        Example("look-alike", _run(0.95, 0.9, chance=0.9), "nearly all tokens are the same"),
        Example("known miss", _run(0.7, 0.6), "a third of the targets replaced, by a mask of its own"),
    ),
    plants=(
        Plant("mild", "model", r"triu\(1\)", "triu(2)", kinds=("language-model",)),
        Plant("middle", "model", r"attn_mask=future, ", "", kinds=("language-model",)),
    ),
    treatment=Treatment("causal_mask", {}, moves="loss", direction="up"),
    decides_with=("tokens",),
)
