"""A penalty drowns the main loss: the network learns to please it, and little else.

What you see
------------
The total loss falls well and the part that matters does not: reconstructions are all alike, predictions stay at the mean. In a
variational autoencoder the latent carries nothing.

Why it happens
--------------
One term is summed over elements and the other averaged, a weight is too large by orders of magnitude, or an auxiliary loss was
added without looking at sizes.

How it is told apart
--------------------
The gradient of each term is measured at the start. Where those of the penalties are larger, the captured batches are trained on
twice, with the whole loss and with the main term alone. A penalty that dominates leaves the main term where guessing is, while
alone it falls far below. A penalty of the right size costs it little.

What to do
----------
Bring the terms to one scale (all sums, or all means over the same elements), then weigh the penalty, starting small; warm it up
in an autoencoder.

When this is wrong
------------------
Where the penalty is what the run is for, a main term at guessing is as intended.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Of guessing: the main term with all terms, and what is lost by them. A collapsed autoencoder gave 1.04 and .46 (measured), one with
# its terms on one scale .6 and below .1 (starting values).
STUCK, GUESSING = 0.75, 0.9
LITTLE, MUCH = 0.15, 0.3


def detect(training: Training) -> Detection | None:
    """Compare where the main term ends with the penalties and without them."""
    facts = training.experiment("terms")
    guess = facts.get("guess") or facts.get("start")
    together, alone = facts.get("together"), facts.get("alone")
    if guess is None or together is None or alone is None or not float(guess) > 0:
        return None
    stays, lost = float(together) / float(guess), (float(together) - float(alone)) / float(guess)
    strength = 0.95 * min(slope(stays, STUCK, GUESSING), slope(lost, LITTLE, MUCH))
    if not strength > 0:
        return None
    steps = (0, int(facts.get("steps") or 0))
    seen = Evidence(
        "terms", steps, f"the main term stays at {stays:.2f} of guessing", f"{stays - lost:.2f}, as it gets without the penalties"
    )
    share = float(facts.get("share") or 0.0)
    sizes = Evidence("terms", (0, 0), f"{share:.0%} of the gradient comes from the penalties", "a small share", _sizes(facts))
    return Detection(strength, (seen, sizes))


def _sizes(facts: Any) -> str:
    terms = [term for term in facts.get("terms") or () if isinstance(term, dict)]
    return ", ".join(f"{term.get('operation')} {float(term.get('gradient') or 0.0):.3g}" for term in terms)


def _run(together: float | None, alone: float | None, share: float = 0.99, guess: float | None = 1.15) -> Training:
    terms = [{"operation": "mse_loss", "value": 3.7, "gradient": 0.9}, {"operation": "sub", "value": 7.7, "gradient": 117.0}]
    facts: dict[str, Any] = {"terms": terms, "main": 0, "share": share}
    if together is not None:
        facts |= {"start": 3.7, "guess": guess, "together": together, "alone": alone, "steps": 200}
    return Training(signals={"loss": Series.of([11.0, 1.3])}, experiments={"terms": Experiment("terms", "done", 3.0, facts)})


# The weights' squares, as a term of the loss.
_SUM = r"^( +)loss = criterion\(output, batch_y\)$"
_PENALTY = r"\1loss = criterion(output, batch_y) + {} * sum(each.square().sum() for each in model.parameters())"

FAULT = Fault(
    code="LOS006",
    slug="penalty-dominates",
    title="An auxiliary term drowns the main loss",
    detect=detect,
    needs=("terms",),
    fix="Bring the terms of the loss to one scale (sums or means over the same elements), then weigh the penalty.",
    explains=("underfitting", "loss-flat", "plateau-then-drop", "lr-too-high"),
    examples=(
        Example("sick", _run(1.2, 0.66), "a summed divergence beside a mean of squares"),
        Example("sick", _run(1.1, 0.1, share=0.9), "a weight that is too large"),
        Example("healthy", _run(None, None, share=0.01), "a small penalty"),
        Example("healthy", _run(0.5, 0.45, share=0.6), "a large gradient at the start, and little lost"),
        Example("look-alike", _run(1.15, 1.14, share=0.8), "neither falls: another fault"),
        Example("look-alike", _run(0.8, 0.66, share=0.9), "a strong penalty, as intended"),
        Example("known miss", _run(0.85, 0.5), "half of the way is lost"),
    ),
    plants=(
        Plant("mild", "loop", _SUM, _PENALTY.format("0.05"), kinds=("loader", "regression")),
        Plant("middle", "loop", _SUM, _PENALTY.format("0.5"), kinds=("loader", "regression")),
        Plant("severe", "loop", _SUM, _PENALTY.format("5.0"), kinds=("loader", "regression")),
    ),
    treatment=Treatment("cut_penalty", {}, moves="call_value", direction="down"),
    decides_with=("terms",),
)
