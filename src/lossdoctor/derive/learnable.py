"""Whether the labels can be learnt at all, as the experiment `baseline` found."""

from __future__ import annotations

from lossdoctor.core.run import Training

LEARNT = 0.95  # held-out loss over guessing: labels without meaning gave .97 and more (field guide, "Measured"; tokens 1.0)
ERRORS = 3.0  # standard errors by which few rows, each left out in turn, must be told better than by the constant answer


def learnable(training: Training) -> bool:
    """Tell whether a small model learnt from the captured rows what holds for the rows left out.

    Example:
        >>> learnable(Training())
        False
    """
    facts = training.found("baseline")
    if "network_loss" in facts:
        return float(facts["network_loss"]) < LEARNT
    return "classical" in facts and float(facts["classical"]) - float(facts["prior"]) > ERRORS * float(facts["spread"])
