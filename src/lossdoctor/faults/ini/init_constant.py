"""All units of a layer start the same, and learn the same for ever.

What you see
------------
The loss falls to a level and stops, or does not move at all; the width of the model makes no difference.

Why it happens
--------------
Weights were set to zero, to one or to another constant. Units with the same weights get the same gradient: they stay one unit, however
many there are.

How it is told apart
--------------------
Layers whose units have the same weights before the first step are trained on captured batches, with dropout off. A zero
layer at the end, or at the end of a residual branch, is common and parts at the first step, since its units have different targets. Units
that are the same after several steps stay so.

What to do
----------
Leave the layers' own start, or use `nn.init.kaiming_normal_` or `xavier_uniform_` on weights; only biases and norms may be constant.

When this is wrong
------------------
A layer that gets no gradient in the first steps by design, and is the same in all its units. Weights that a script makes by hand, without
a layer of torch, are not looked at.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Series, Training


def detect(training: Training) -> Detection | None:
    """Look for layers whose units were the same at the start and after some steps."""
    facts = training.experiment("flow")
    together = [str(name) for name in facts.get("together") or ()]
    if not together:
        return None
    layers = len(facts.get("layers") or ()) or len(together)
    seen = Evidence("flow", (0, 0), f"{len(together)} of {layers} layers with units that are all the same", "0", ", ".join(together[:5]))
    stay = Evidence("flow", (0, 0), "they moved as one in 8 steps of training", "apart", "units that start alike get the same gradient")
    return Detection(0.95, (seen, stay))


def _run(together: tuple[str, ...], alike: tuple[str, ...] = (), **fields: Any) -> Training:
    layers = [
        {"name": name, "kind": "Linear", "weight": 0.1, "gradient": 0.1, "update": 0.01} for name in ("0.weight", "2.weight", "4.weight")
    ]
    facts = {"layers": layers, "alike": list(alike or together), "together": list(together), **fields}
    return Training(signals={"loss": Series.of([2.3, 2.3])}, experiments={"flow": Experiment("flow", "done", 0.1, facts)})


_CONSTANT = (
    r"initialise(model)\nfor part in model.modules():\n    if isinstance(part, nn.Linear):\n        nn.init.constant_(part.weight, 0.05)"
)


FAULT = Fault(
    code="INI001",
    slug="init-constant",
    title="All units start the same",
    detect=detect,
    needs=("flow",),
    fix="Give weights a random start (leave the layer's own, or kaiming_normal_, xavier_uniform_); only biases and norms may be constant.",
    explains=(
        "dead-units",
        "saturated-units",
        "model-too-small",
        "loss-flat",
        "underfitting",
        "vanishing-gradients",
        "init-scale-wrong",
        "labels-meaningless",
        "lr-too-low",
        "step-missing",
        "lr-too-high",
    ),
    examples=(
        Example("sick", _run(("0.weight", "2.weight", "4.weight")), "all weights one constant"),
        Example("sick", _run(("2.weight",)), "one hidden layer"),
        Example("healthy", _run(()), "random"),
        Example("healthy", _run((), ("4.weight",)), "a zero layer at the end"),
        Example("look-alike", _run((), ("2.weight", "4.weight")), "zero layers of residual branches"),
        Example("look-alike", _run((), ("0.weight",)), "positions that start at zero"),
        Example("known miss", _run((), alike=(), layers=[]), "two groups of equal units"),
    ),
    plants=(Plant("middle", "model", r"^initialise\(model\)$", _CONSTANT, kinds=("relu", "tanh")),),
    treatment=Treatment("reinitialise", {}, moves="loss", direction="down"),
    decides_with=("flow",),
)
