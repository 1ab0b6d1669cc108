"""Padding takes part: real tokens attend to it, or it is counted in the loss.

What you see
------------
Results depend on how far a text is filled up, and so on the other texts of its batch. Or the loss is low because most targets are
filling, and easy.

Why it happens
--------------
No padding mask is handed to attention, or the wrong one (true where it should be false, of the wrong axis); the loss lacks
`ignore_index`, or has another number than the filling.

How it is told apart
--------------------
The token that fills up short rows is found by the runs that it makes at one end of the rows. Its embedding is moved: with a correct mask no
output that belongs to a real token moves. Where targets belong to places, those on filling that count are counted. A causal model with
its filling on the right does not see it.

What to do
----------
Hand `src_key_padding_mask=(tokens == pad)` to attention, true where there is padding, and `ignore_index=pad` to the loss.

When this is wrong
------------------
A filling that means something: silence, an end of text that should be learnt.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

MOVED = 1e-3  # in spreads of the outputs, as for the causal leak
UNSURE = 0.5  # without attention: means over all places, and recurrent layers that run on
HALF = 0.4  # share of counted targets that are filling (starting value)


def detect(training: Training) -> Detection | None:
    """Look for outputs of real tokens that follow the filling, and for filling among the targets."""
    facts = training.experiment("padding")
    moved, counted, share = facts.get("moved"), facts.get("counted"), float(facts.get("share") or 0.0)
    evidence: list[Evidence] = []
    strength, severity = 0.0, "error"
    note = f"token {facts.get('token')} fills {share:.0%} of the places, on the {facts.get('end')}"
    if moved is not None and MOVED <= float(moved) < float("inf"):
        evidence.append(Evidence("padding", (0, 0), f"outputs of real tokens move by {float(moved):.2g} of their spread", "0", note))
        strength = 0.93 if facts.get("attends") else UNSURE
    if counted is not None and float(counted) > HALF:
        evidence.append(Evidence("padding", (0, 0), f"{float(counted):.0%} of the targets that count are filling", "0%", note))
        severity = severity if strength > UNSURE else "warning"
        strength = max(strength, 0.88)
    return Detection(strength, tuple(evidence), severity=_severity(severity)) if evidence else None


def _severity(word: str) -> Severity:
    return "warning" if word == "warning" else "error"


def _run(moved: float | None, counted: float | None = None, attends: bool = True, share: float = 0.4) -> Training:
    facts: dict[str, Any] = {"token": 0, "end": "right", "share": share, "moved": moved, "attends": attends, "counted": counted}
    return Training(signals={"loss": Series.of([2.3, 1.0])}, experiments={"padding": Experiment("padding", "done", 0.1, facts)})


FAULT = Fault(
    code="TRF004",
    slug="padding-mask-wrong",
    title="Padding is attended to, or counted in the loss",
    detect=detect,
    needs=("padding",),
    fix="Hand the padding mask to attention (true where there is padding), and ignore_index to the loss.",
    explains=("overfitting", "underfitting", "batch-mixing"),
    examples=(
        Example("sick", _run(0.3), "attention without a mask"),
        Example("sick", _run(0.0, 0.6), "most of the loss is filling"),
        Example("healthy", _run(0.0, 0.0), "masked and ignored"),
        Example("healthy", _run(2e-7), "sums in another order"),
        Example("look-alike", _run(0.4, attends=False), "a recurrent layer that runs on: suspected"),
        Example("look-alike", _run(0.0, 0.2), "some filling is counted"),
        Example("known miss", _run(None), "embeddings that torch did not make"),
    ),
    decides_with=("padding",),
)
