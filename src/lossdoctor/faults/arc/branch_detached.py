"""A part of the model is used and gets no gradient: the way back to it is cut.

What you see
------------
The model learns less than it should, as if a part of it were random features, which it is. Nothing warns.

Why it happens
--------------
`.detach()`, `.data`, `.item()`, numpy or `torch.no_grad()` stands on the way; an argmax or a rounding decides; a tensor is made anew
with `torch.tensor(...)` from values of the part.

How it is told apart
--------------------
Weights that the optimiser holds and that can learn never had a gradient. Each of them is moved by a random amount: where the loss
changes, it is used, and cut; where it does not, the part is not used at all, which costs nothing. Frozen parts and parts that no
optimiser holds (a teacher, features taken without gradient) are meant.

What to do
----------
Find the first tensor behind that part without a `grad_fn`, and remove what cut it; of a decision, use its scores.

When this is wrong
------------------
A part that a script freezes at first, by taking its outputs without gradient, and trains later on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

# Shares of what can learn (starting values), as for parts that the optimiser lacks.
SMALL, LARGE = 0.01, 0.1
LOOKS = 2  # at the gradients


def detect(training: Training) -> Detection | None:
    """Look for weights that the loss depends on and that never had a gradient."""
    cut = [str(name) for name in training.experiment("flow").get("cut") or ()]
    if not cut:
        return None
    norms = training.series("grad_norms")
    if len(norms) < LOOKS or norms.values.ndim != 2:
        raise SignalMissing("grad_norms")
    never = {name for name, column in zip(norms.names, norms.values.T, strict=False) if np.isnan(column).all()}
    if len(never) == len(norms.names):
        return None  # nothing has a gradient: the loss itself is cut
    found = [name for name in cut if name in never]
    if not found:
        return None
    facts = training.experiment("flow")
    share = float(facts.get("cut_elements") or 0.0) / max(1.0, float(facts.get("elements") or 0.0)) * len(found) / len(cut)
    severity: Severity = "advice" if share < SMALL else "warning" if share < LARGE else "error"
    span = (int(norms.steps[0]), int(norms.steps[-1]))
    seen = Evidence(
        "grad_norms", span, f"{len(found)} parameters without a gradient, {share:.0%} of the elements", "0", ", ".join(found[:5])
    )
    used = Evidence("flow", (0, 0), "the loss changes when they are moved", "used parts get a gradient", "the way back to them is cut")
    return Detection(0.95, (seen, used), severity=severity)


def _run(cut: tuple[str, ...], never: tuple[str, ...], elements: int = 400, **fields: Any) -> Training:
    names = ("encoder.weight", "encoder.bias", "head.weight")
    values = [[np.nan if name in never else 0.3 for name in names]] * 4
    facts = {"cut": list(cut), "cut_elements": elements, "elements": 1000, "without": list(cut), **fields}
    return Training(
        signals={"loss": Series.of([2.3] * 8), "grad_norms": Series.of(values, names=names)},
        experiments={"flow": Experiment("flow", "done", 0.1, facts)},
    )


_ENCODER = ("encoder.weight", "encoder.bias")

FAULT = Fault(
    code="ARC005",
    slug="branch-detached",
    title="A part of the model gets no gradient",
    detect=detect,
    needs=("flow", "grad_norms"),
    fix="Remove what cuts the way back (detach, .data, .item(), numpy, no_grad, argmax) behind the part that gets no gradient.",
    explains=("model-too-small", "underfitting", "loss-flat", "step-missing", "lr-too-low"),
    examples=(
        Example("sick", _run(_ENCODER, _ENCODER), "an encoder behind a detach"),
        Example("sick", _run(("head.weight",), ("head.weight",), 20), "a small part"),
        Example("healthy", _run((), ()), "all get one"),
        Example("healthy", _run((), _ENCODER), "without a gradient and not used"),
        Example("look-alike", _run(_ENCODER, ()), "cut in the first step only"),
        Example("look-alike", _run(_ENCODER, (*_ENCODER, "head.weight")), "nothing has a gradient: another fault"),
        Example("known miss", _run(("teacher.weight",), ("teacher.weight",)), "names that the optimiser does not know"),
    ),
    decides_with=("flow",),
)
