"""The last activation cannot give what the targets are.

What you see
------------
The loss stops high and the predictions are clipped: never below zero, never above one, or all the same number.

Why it happens
--------------
A sigmoid, tanh, softmax or ReLU stands after the last layer of a model whose targets lie elsewhere: a ReLU before targets that
are negative too, a sigmoid before standardised ones, a softmax over a single output, which is 1 whatever enters it. Before a loss that
wants logits, a tanh lets no answer be sure and a ReLU none be "no".

How it is told apart
--------------------
The operation that made what enters the loss has a range. How much of the targets' variance lies outside of it is counted; that no
training can take away. Scaled outputs (a sigmoid times the largest target) end with the product and have no such range.

What to do
----------
Return the last layer's outputs as they are for regression and for losses of logits; or bring the targets into the range.

When this is wrong
------------------
Targets with a few outliers beyond the range that are meant to be clipped.
"""

from __future__ import annotations

import math
from typing import Any

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Share of the targets' variance that no training can take away, and of targets out of reach (starting values).
LITTLE, MUCH = 0.02, 0.15
FEW = 0.05
CLASSES = ("cross_entropy",)
BINARY = ("binary_cross_entropy_with_logits",)
PROBABILITIES = ("Sigmoid", "Softmax")  # before a loss that wants logits they are softmax-before-cross-entropy
STILL = 0.5  # share of classes whose output is the same for every row, from which on a ReLU before the loss costs them


def detect(training: Training) -> Detection | None:
    """Compare the range of the operation that made the outputs with the targets."""
    facts = training.experiment("objective")
    last, kind = str(facts.get("last") or ""), str(facts.get("kind") or "")
    if not last:
        return None
    if last == "Softmax" and facts.get("still") == 1.0 and facts.get("columns") == 1:
        return _told("a softmax over one output gives 1 for every row", "one score for each class, or a sigmoid", 0.97)
    if kind in BINARY and last in ("Relu", "Softplus", "Exp"):
        return _told(f"{last} made the logits: none is below 0", "logits of both signs", 0.95, "no answer is below one half")
    if kind in CLASSES and int(facts.get("columns") or 0) > 1:
        return _of_classes(last, int(facts["columns"]), float(facts.get("still") or 0.0))
    return _out_of_reach(facts, last)


def _of_classes(last: str, classes: int, still: float) -> Detection | None:
    if last in ("Tanh", "Hardtanh"):
        floor = math.log(1 + (classes - 1) * math.exp(-2.0))
        return _told(f"{last} made the logits: they lie in [-1, 1]", "logits of any size", 0.93, f"the loss cannot get below {floor:.2f}")
    if last == "Relu":
        note = f"{still:.0%} of the classes give 0 for every row of the first batch, and no gradient"
        severity: Severity = "error" if still >= STILL else "warning"
        return _told("a ReLU made the logits: none is below 0", "logits of both signs", 0.9, note, severity)
    return None


def _out_of_reach(facts: Any, last: str) -> Detection | None:
    beyond, floor = facts.get("beyond"), facts.get("floor")
    if beyond is None or floor is None or not float(beyond) > FEW:
        return None
    strength = 0.96 * slope(float(floor), LITTLE, MUCH)
    if not strength > 0:
        return None
    low, high = (float(facts.get(name) or 0.0) for name in ("low", "high"))
    reach = f"{last}: {'from' if math.isinf(high) else ''} {low:g}{' on' if math.isinf(high) else f' to {high:g}'}".replace("  ", " ")
    note = f"{float(floor):.0%} of their variance no training can explain"
    return _told(f"{float(beyond):.0%} of the targets lie outside of what the last operation gives ({reach})", "0%", strength, note)


def _told(seen: str, expected: str, strength: float, note: str = "", severity: Severity = "error") -> Detection:
    return Detection(strength, (Evidence("objective", (0, 0), seen, expected, note),), severity=severity)


def _run(last: str, kind: str = "mse_loss", **fields: Any) -> Training:
    facts = {"kind": kind, "last": last, "low": 0.0, "high": 1.0, "columns": 1, "beyond": None, "floor": None, "still": 0.0, **fields}
    return Training(signals={"loss": Series.of([1.0, 0.9])}, experiments={"objective": Experiment("objective", "done", 0.1, facts)})


FAULT = Fault(
    code="ARC003",
    slug="output-activation-wrong",
    title="The last activation cannot reach the targets",
    detect=detect,
    needs=("objective",),
    fix="Return the last layer's outputs without an activation, or bring the targets into its range.",
    explains=(
        "model-too-small",
        "underfitting",
        "loss-flat",
        "labels-meaningless",
        "dead-units",
        "saturated-units",
        "lr-too-low",
        "class-imbalance",
    ),
    examples=(
        Example("sick", _run("Sigmoid", beyond=0.6, floor=0.5), "a sigmoid before standardised targets"),
        Example("sick", _run("Relu", high=math.inf, beyond=0.5, floor=0.4), "a ReLU before targets of both signs"),
        Example("sick", _run("Softmax", "binary_cross_entropy", still=1.0), "a softmax over one output"),
        Example("sick", _run("Tanh", "cross_entropy", columns=10), "a tanh before the cross entropy"),
        Example("sick", _run("Relu", "binary_cross_entropy_with_logits"), "a ReLU before the binary loss of logits"),
        Example("healthy", _run("Addmm", low=-math.inf, high=math.inf, beyond=0.0, floor=0.0), "no activation"),
        Example("healthy", _run("Sigmoid", beyond=0.0, floor=0.0), "targets in [0, 1]"),
        Example("look-alike", _run("Mul", low=-math.inf, high=math.inf, beyond=0.0, floor=0.0), "a sigmoid times the largest target"),
        Example("look-alike", _run("Relu", high=math.inf, beyond=0.04, floor=0.01), "a few targets below 0"),
        Example("known miss", _run("Sigmoid", beyond=0.1, floor=0.05), "a tenth of the targets a little out of reach"),
    ),
    plants=(
        Plant("middle", "model", r"return self\.head\(x\)$", r"return torch.sigmoid(self.head(x))", kinds=("regression",)),
        Plant("middle", "model", r"return self\.head\(x\)$", r"return torch.tanh(self.head(x))", kinds=("classifier",)),
    ),
    treatment=Treatment("drop_last_activation", {}, moves="loss", direction="down"),
    decides_with=("objective",),
)
