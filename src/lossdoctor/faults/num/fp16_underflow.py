"""Half precision loses small numbers: gradients, squares of gradients or the optimiser's epsilon become zero.

What you see
------------
Weights in float16: the first loss and its gradients are finite, and after the first step everything is NaN.

Why it happens
--------------
Half precision holds nothing between zero and 6e-8. Adam divides by the root of a mean of squared gradients plus epsilon; the usual
epsilon of 1e-8 is zero there, and so is the square of any gradient below 2.4e-4. Zero divided by zero is NaN.

How it is told apart
--------------------
The weights that train are float16 themselves, the optimiser's epsilon rounds to zero in that type, and the loss is finite before the
first step and not after the first steps. An overflow shows a gradient that is not finite first.

What to do
----------
Keep the weights in float32 and use `torch.autocast` with a `GradScaler`, or bfloat16. An epsilon of 1e-4 only hides it.

When this is wrong
------------------
An optimiser that keeps its state in float32 beside half weights has no such zero.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.outcome import broken_from

# Half of the smallest number above zero that float16 holds, 2**-24 (IEEE 754): what is not above it rounds to zero.
ROUNDS_TO_ZERO = 2.0**-25
FIRST_STEPS = 20  # a zero epsilon strikes as soon as one squared gradient is zero
CERTAIN, LIKELY = 0.97, 0.6


def detect(training: Training) -> Detection | None:
    """Look for half weights, an epsilon that is zero for them, and a loss that a first step breaks."""
    loss, step = training.series("loss"), broken_from(training.series("loss"))
    epsilon = _epsilon(training)
    if step is None or epsilon is None or not _half(training):
        return None
    at = int(np.searchsorted(loss.steps, step))
    if at == 0 or not np.isfinite(_first_gradient(training)):
        return None  # not finite before any step: the step did not do it
    seen = (
        Evidence("optimizer", (0, step), f"epsilon {epsilon:g} is 0 in float16", "float32 weights, or bfloat16"),
        Evidence("loss", (int(loss.steps[at - 1]), step), f"{loss.values[at - 1]:.4g}, then not finite", "a finite number"),
    )
    return Detection(CERTAIN if step <= FIRST_STEPS else LIKELY, seen, where=training.where("step"))


def _epsilon(training: Training) -> float | None:
    """Return the least epsilon of the optimiser where half precision makes it zero."""
    groups = (training.fact("optimizer") or {}).get("groups") or []
    known = [float(group["eps"]) for group in groups if isinstance(group.get("eps"), int | float)]
    return min(known) if known and min(known) <= ROUNDS_TO_ZERO else None


def _half(training: Training) -> bool:
    return any(each.get("dtype") == "float16" and each.get("requires_grad", True) for each in training.fact("parameters") or [])


def _first_gradient(training: Training) -> float:
    norms = training.signals.get("grad_norm", Series.of([]))
    return float(norms.values[0]) if len(norms) else 0.0


def _run(*loss: float, dtype: str = "float16", eps: float = 1e-8, gradient: float = 0.1) -> Training:
    facts: dict[str, Any] = {
        "parameters": [{"name": "0.weight", "dtype": dtype, "requires_grad": True}],
        "optimizer": {"name": "Adam", "groups": [{"lr": 1e-3, "eps": eps, "parameters": 1}]},
    }
    return Training(signals={"loss": Series.of(loss), "grad_norm": Series.of([gradient, nan, nan])}, facts=facts)


FAULT = Fault(
    code="NUM003",
    slug="fp16-underflow",
    title="Half precision loses small numbers",
    detect=detect,
    needs=("loss",),
    fix="Keep the weights in float32 and use torch.autocast with a GradScaler, or train in bfloat16.",
    severity="warning",
    explains=("loss-not-finite", "loss-flat"),
    examples=(
        Example("sick", _run(0.24, nan, nan, nan), "NaN after the first step of Adam"),
        Example("sick", _run(0.24, 0.23, 0.22, nan, nan), "NaN as soon as one squared gradient is zero"),
        Example("healthy", _run(0.24, 0.1, 0.05), "half weights that learn"),
        Example("healthy", _run(0.24, 0.1, 0.05, dtype="float32"), "single precision with the usual epsilon"),
        Example("look-alike", _run(0.24, nan, nan, dtype="float32"), "another cause of NaN"),
        Example("look-alike", _run(0.24, nan, nan, eps=1e-4), "an epsilon that half precision holds"),
        Example("look-alike", _run(0.24, nan, nan, gradient=nan), "a gradient that was not finite before any step: overflow"),
        Example("look-alike", _run(nan, nan), "not finite from the start"),
        Example("known miss", _run(0.24, 0.24, 0.24), "updates that half weights round away, without NaN"),
    ),
    treatment=Treatment("full_precision", {}, moves="loss", direction="down", safety="safe"),
)
