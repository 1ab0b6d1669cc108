"""Nothing non-linear stands between the layers: together they are one linear layer.

What you see
------------
More layers and more units change nothing. The loss stops where a linear model stops, on training and validation data alike.

Why it happens
--------------
Activations were left out, are made in `__init__` and not called in `forward`, or their result is thrown away (`x.relu()` without
keeping it). Linear layers, convolutions, means and batch norm in sequence are one linear map.

How it is told apart
--------------------
Two inputs and their middle are sent through the model. In a linear model what enters the last layer is then exactly the middle, to
the last bits; any activation, attention or gate bends it. Where only maximum pooling bends, it is replaced by a mean and asked again. A
linear autoencoder, whose targets are its inputs, is linear on purpose.

What to do
----------
Put an activation after every layer but the last, and use what it returns.

When this is wrong
------------------
Deep linear networks that are studied as such, and a factorised linear layer before fixed features.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome

STRAIGHT = 1e-4  # in spreads: float32 sums of a linear model stay below 1e-6, a single ReLU layer bends by .2 and more (measured)
SOLVED = 0.05  # loss over guessing below which a linear model is all that the task needs (starting value)
CERTAIN, BUT_POOLING = 0.96, 0.88


def detect(training: Training) -> Detection | None:
    """Look for a straight line from the inputs to what enters the last layer."""
    facts = training.experiment("linear")
    bend, pooled, layers = facts.get("bend"), facts.get("bend_pooled"), int(facts.get("layers") or 0)
    if layers < 2 or facts.get("copies"):
        return None
    if bend is None:
        raise SignalMissing("linear", "inputs that can be mixed, or a model whose layers torch makes")
    straight = float(bend) < STRAIGHT
    if not straight and (pooled is None or not float(pooled) < STRAIGHT):
        return None
    note = "between the middle of two results and the result of the middle" + ("" if straight else ", with means in place of maxima")
    seen = Evidence("linear", (0, 0), f"{float(bend if straight else pooled or 0.0):.1g} spreads", "above 0.01", note)
    count = Evidence(
        "linear", (0, 0), f"{layers} layers, as one", "an activation between them", "what enters the last is linear in the inputs"
    )
    return Detection(CERTAIN if straight else BUT_POOLING, (seen, count), severity=_severity(training, straight))


def _severity(training: Training, straight: bool) -> Severity:
    level = expected_level(training)
    found = outcome(training.series("loss"), level.guess if level else None) if training.has("loss") else None
    if found is not None and found.level is not None and found.level < SOLVED:
        return "advice"
    return "error" if straight else "warning"


def _run(bend: float | None, pooled: float | None = None, layers: int = 3, end: float = 1.0, **fields: Any) -> Training:
    facts = {
        "layers": layers,
        "bend": bend,
        "bend_pooled": bend if pooled is None else pooled,
        "widths": [32] * (layers - 1),
        "copies": False,
    }
    call = Row(0, {"kind": "cross_entropy", "class_counts": [8, 8], "guess_loss": 0.693, "zero_loss": 0.693})
    return Training(
        signals={"loss": Series.of([0.7] * 6 + [0.69 * end] * 30)},
        rows={"loss_call": [call]},
        experiments={"linear": Experiment("linear", "done", 0.1, {**facts, **fields})},
    )


# The hidden layers of the recipes that are perceptrons, without what lies between them.
_BODY = r"(nn\.Sequential\()nn\.Linear\((\d+), WIDTH\), nn\.\w+\(\), nn\.Linear\(WIDTH, WIDTH\), nn\.\w+\(\).*\)$"


FAULT = Fault(
    code="ARC002",
    slug="no-nonlinearity",
    title="Nothing non-linear between the layers",
    detect=detect,
    needs=("linear",),
    fix="Put an activation (ReLU, GELU) after every layer but the last, and use what it returns.",
    explains=("model-too-small", "underfitting", "loss-flat", "labels-meaningless", "lr-too-low", "too-few-epochs"),
    examples=(
        Example("sick", _run(2e-7), "linear layers alone"),
        Example("sick", _run(0.2, 3e-7), "convolutions and maximum pooling alone"),
        Example("healthy", _run(0.31), "activations between all layers"),
        Example("healthy", _run(0.02), "one activation that bends a little"),
        Example("look-alike", _run(1e-7, layers=1), "one layer: a linear model"),
        Example("look-alike", _run(1e-7, copies=True), "a linear autoencoder"),
        Example("known miss", _run(0.3), "activations at the last hidden layer only"),
    ),
    plants=(Plant("middle", "model", _BODY, r"\1nn.Linear(\2, WIDTH), nn.Linear(WIDTH, WIDTH))", kinds=("tanh", "regression")),),
    treatment=Treatment("activate_between", {}, moves="loss", direction="down"),
    decides_with=("linear",),
)
