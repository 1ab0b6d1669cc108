"""Whether the labels can be learnt at all, as the experiment `baseline` found."""

from __future__ import annotations

from lossdoctor.core.run import Training

LEARNT = 0.95  # held-out loss over guessing: labels without meaning gave .97 and more (field guide, "Measured"; tokens 1.0)


def learnable(training: Training) -> bool:
    """Tell whether a small model learnt from the captured rows what holds for the rows left out.

    Example:
        >>> learnable(Training())
        False
    """
    done = training.experiments.get("baseline")
    if done is None or done.status != "done" or "network_loss" not in done.facts:
        return False
    return float(done.facts["network_loss"]) < LEARNT
