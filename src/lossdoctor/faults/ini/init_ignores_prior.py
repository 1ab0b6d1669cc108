"""The first steps are spent on learning how frequent the classes are.

What you see
------------
The loss falls steeply in the first steps, from ln(classes) to the entropy of the labels, while the score stays that of the most frequent
class.

Why it happens
--------------
The last bias starts at zero: all classes are taken for equally likely, which they are not.

How it is told apart
--------------------
The first loss is that of equal probabilities, and the best constant answer to the targets that were seen is clearly better.

What to do
----------
Set the last bias to the logarithm of the class frequencies (of yes and no: to the logit of the share of yes) before the first step.

When this is wrong
------------------
It costs some steps, no more; of a language model hardly anybody minds.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level

GAIN = 0.5  # nats (field guide, row 36)
START = (0.75, 1.35)  # first loss over that of equal probabilities: a start of sound scale (starting values)
KINDS = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def detect(training: Training) -> Detection | None:
    """Compare the first loss with what the class frequencies give."""
    level, calls = expected_level(training), training.table("loss_call")
    loss = training.series("loss").finite()
    if level is None or not len(loss) or calls[0].get("kind") not in KINDS or calls[0].get("reduction", "mean") != "mean":
        return None
    if not START[0] * level.start <= loss.first <= START[1] * level.start or not loss.first - level.guess > GAIN:
        return None
    seen = Evidence("loss", (0, 0), f"{loss.first:.2f}", f"{level.guess:.2f}", "what answering with the class frequencies gives")
    return Detection(0.9, (seen,))


def _run(first: float, guess: float, start: float = 2.303, kind: str = "cross_entropy") -> Training:
    call = Row(0, {"kind": kind, "guess_loss": guess, "zero_loss": start, "reduction": "mean"})
    return Training(signals={"loss": Series.of([first] + [guess] * 9)}, rows={"loss_call": [call]})


FAULT = Fault(
    code="INI003",
    slug="init-ignores-prior",
    title="The first epoch is spent on learning class frequencies",
    detect=detect,
    needs=("loss", "loss_call"),
    fix="Set the last bias to the logarithm of the class frequencies before the first step.",
    severity="advice",
    explains=("plateau-then-drop",),
    examples=(
        Example("sick", _run(2.35, 0.8), "ten classes, one of them frequent"),
        Example("sick", _run(9.2, 6.1, 9.2), "a vocabulary"),
        Example("healthy", _run(2.31, 2.29), "classes alike"),
        Example("healthy", _run(0.85, 0.8), "a bias that knows"),
        Example("look-alike", _run(30.0, 0.8), "a start of another scale"),
        Example("look-alike", _run(1.5, 0.8), "neither"),
        Example("known miss", _run(0.69, 0.3, 0.69, "binary_cross_entropy_with_logits"), "two classes, of which one is rare"),
    ),
)
