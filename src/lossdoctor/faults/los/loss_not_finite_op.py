"""The loss takes a logarithm of zero, or divides by it, as soon as the model is sure of itself.

What you see
------------
Training goes well and ends in NaN, at a step that differs from run to run; or every loss is NaN from the first step on.

Why it happens
--------------
`log(softmax(x))`, `log(1 - p)` or a quotient is written by hand. In float32 a probability becomes exactly 1 when logits are 17
apart, and exactly 0 at 104; the logarithm of zero is infinite, and zero times infinity is NaN.

How it is told apart
--------------------
The first captured step is repeated with the model's outputs, and then its inputs, 10 to 1,000 times as large. The first function
after the model whose result is not finite, while all that enters it is, names the operation. Losses of torch stay finite there,
and so do losses with a clamp or a small number added. An exponential that overflows is not counted: a model learns to stay below
it.

What to do
----------
Use the form that takes logits (`log_softmax`, `logsigmoid`, `binary_cross_entropy_with_logits`, `cross_entropy`), or clamp before
the logarithm.

When this is wrong
------------------
A model whose outputs are bounded far from 0 and 1 by its data never gets there.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Experiment, Series, Training

# Functions with a pole where a probability or a norm is exactly 0 or 1. What overflows (exp, square, mul) is left out.
POLES = ("log", "log2", "log10", "log1p", "div", "truediv", "__truediv__", "true_divide", "reciprocal", "rsqrt", "logit", "xlogy")
LARGEST = 1000.0


def detect(training: Training) -> Detection | None:
    """Look at which operation the loss breaks when the model's outputs or inputs are scaled up."""
    facts = training.experiment("stress")
    first = facts.get("first")
    found = [(what, facts.get(what)) for what in ("outputs", "inputs")]
    broken = [(what, each) for what, each in found if isinstance(each, dict) and each.get("operation") in POLES]
    if not broken or first is None or not abs(float(first)) < float("inf"):
        return None
    what, each = broken[0]
    factor = float(each.get("factor") or 0.0)
    if not 0 < factor <= LARGEST:
        return None
    seen = f"the loss becomes {each.get('loss')} at {each['operation']}()"
    evidence = Evidence(
        "stress", (0, 0), seen, "a number", f"with the model's {what} {factor:.0f} times as large; as they were it is {float(first):.3g}"
    )
    return Detection(0.93, (evidence,))


def _run(outputs: str | None, inputs: str | None = None, factor: float = 100.0, first: float = 0.07) -> Training:
    def broken(operation: str | None) -> dict[str, Any] | None:
        return None if operation is None else {"factor": factor, "operation": operation, "loss": float("nan"), "gradient": False}

    facts = {"first": first, "outputs": broken(outputs), "inputs": broken(inputs), "single": 0.07, "empty_mask": None}
    return Training(signals={"loss": Series.of([0.07, 0.03])}, experiments={"stress": Experiment("stress", "done", 0.1, facts)})


FAULT = Fault(
    code="LOS008",
    slug="loss-not-finite-op",
    title="log(0), division by zero, sqrt(0) inside model or loss",
    detect=detect,
    needs=("stress",),
    fix="Use the form of the loss that takes logits, or clamp what enters the logarithm or the quotient.",
    explains=("loss-not-finite", "loss-diverged", "lr-too-high"),
    examples=(
        Example("sick", _run("log"), "the logarithm of a probability"),
        Example("sick", _run(None, "__truediv__", factor=10.0), "a quotient of probabilities, sigmoid in the model"),
        Example("healthy", _run(None), "finite at every scale"),
        Example("healthy", _run(None, None, factor=10.0), "a loss of torch"),
        Example("look-alike", _run("exp"), "an exponential of a log-variance overflows"),
        Example("look-alike", _run("", "mse_loss"), "the square of a huge output overflows"),
        Example("known miss", _run("pow"), "a negative power written as one"),
    ),
    treatment=Treatment("finite_operations", {}, moves="loss", direction="down"),
    decides_with=("stress",),
)
