"""The loss does not fit the target: it asks another question than the score does.

What you see
------------
The loss is zero from the first step, or falls while the score does not rise; the model answers with numbers between classes.

Why it happens
--------------
A cross entropy over a single output, which is zero whatever it is; a squared error on class numbers, as if class 9 were thrice class
3; a softmax loss for examples that have several labels; a binary loss on class numbers; a margin loss, which wants -1 and 1, on 0 and 1.

How it is told apart
--------------------
Kind, shapes and targets of the sampled calls are set against what each loss takes. Whether whole numbers are names or amounts is
decided by the captured rows: a linear model fits amounts best in their own order, and names in any other as well.

What to do
----------
One of several classes: `cross_entropy` with an output for each. Yes or no, or several at once: `binary_cross_entropy_with_logits`.
Amounts: `mse_loss`.

When this is wrong
------------------
Grades that a regression fits badly because their steps are uneven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Row, Series, Training

LEAST_CALLS = 2
ROUNDING = 0.01
MANY = 100.0  # beyond it numbers name no class
SEVERAL = 1.2  # labels for each example, on average
REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
MARGINS = ("soft_margin_loss", "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss")
# R2 of a linear model for the best numbering and for the targets' own, and the share of random numberings that their own beats. Amounts
# beat nearly all; of names any share is as likely as another (starting values).
TOLD, LOST, BEATEN = 0.3, 0.1, 0.9
LEAST_VALUES = 4


def detect(training: Training) -> Detection | None:
    """Set loss, outputs and targets against one another."""
    calls = [row for row in training.table("loss_call") if row.get("kind")]
    kinds = {str(row["kind"]) for row in calls}
    if len(calls) < LEAST_CALLS or len(kinds) != 1:
        return None
    kind, first = kinds.pop(), calls[0]
    shape = first.get("input_shape") or []
    if kind in ("cross_entropy", "nll_loss") and len(shape) > 1 and shape[1] == 1:
        return _told(training, calls, "one output", "one for each class", 0.97, "a softmax over one output is 1: the loss is always 0")
    low, high = ([float(row[name]) for row in calls if row.get(name) is not None] for name in ("target_min", "target_max"))
    if not low or not high:
        return None
    if kind == "binary_cross_entropy_with_logits" and min(low) >= 0 and 1 + ROUNDING < max(high) <= MANY:
        return _told(training, calls, f"targets up to {max(high):g}", "0 to 1", 0.95, "class numbers under a loss of yes and no")
    if kind in MARGINS and min(low) >= 0 and max(high) <= 1 + ROUNDING and min(low) < ROUNDING:
        return _told(training, calls, "targets 0 and 1", "-1 and 1", 0.94, f"{kind} has nothing to say of a target of 0")
    if kind == "cross_entropy" and shape and shape == first.get("target_shape"):
        return _several(training, calls, max(high))
    return _names(training, calls) if kind in REGRESSION else None


def _several(training: Training, calls: Sequence[Row], high: float) -> Detection | None:
    sums = [float(row["target_mean"]) * float(row["classes"]) for row in calls if row.get("target_mean") is not None and row.get("classes")]
    if not sums or high > 1 + ROUNDING or not sum(sums) / len(sums) > SEVERAL:
        return None
    seen = f"{sum(sums) / len(sums):.1f} labels for each example"
    return _told(training, calls, seen, "rows that sum to 1", 0.94, "several labels under a loss of one of several classes")


def _names(training: Training, calls: Sequence[Row]) -> Detection | None:
    facts = training.found("baseline")
    values, own, best, rank = (facts.get(name) for name in ("values", "own_order", "best_order", "order_rank"))
    if values is None or own is None or best is None or rank is None or int(values) < LEAST_VALUES:
        return None
    if not float(best) > TOLD or not float(best) - float(own) > LOST or not float(rank) < BEATEN:
        return None
    note = f"{1 - float(rank):.0%} of random numberings fit a linear model better, R2 up to {float(best):.2f} for {float(own):.2f}"
    return _told(training, calls, f"{int(values)} whole numbers under {calls[0]['kind']}", "amounts", 0.9, note)


def _told(training: Training, calls: Sequence[Row], seen: str, expected: str, strength: float, note: str) -> Detection:
    evidence = Evidence("loss_call", (calls[0].step, calls[-1].step), seen, expected, note)
    return Detection(strength, (evidence,), where=training.where("loss"))


def _run(kind: str, order: tuple[float, float, float] | None = None, **fields: Any) -> Training:
    call = {"kind": kind, "input_shape": [32, 1], "target_shape": [32, 1], "target_min": 0.0, "target_max": 1.0, **fields}
    facts = {"own_order": order[0], "best_order": order[1], "order_rank": order[2], "values": 10} if order else {}
    return Training(
        signals={"loss": Series.of([2.3, 0.1])},
        rows={"loss_call": [Row(step, call) for step in range(4)]},
        experiments={"baseline": Experiment("baseline", "done", 1.0, facts)},
    )


_MULTI: dict[str, Any] = {"input_shape": [32, 8], "target_shape": [32, 8], "classes": 8}

FAULT = Fault(
    code="LOS002",
    slug="loss-family-wrong",
    title="The loss does not fit the target",
    detect=detect,
    needs=("loss_call",),
    fix="One of several classes: cross_entropy with an output for each. Yes or no, or several at once: "
    "binary_cross_entropy_with_logits. Amounts: mse_loss.",
    explains=(
        "loss-flat",
        "labels-meaningless",
        "underfitting",
        "model-too-small",
        "loss-diverged",
        "step-missing",
        "lr-too-low",
        "labels-misencoded",
        "output-activation-wrong",
        "metric-wrong",
        "label-noise",
        "targets-unscaled",
    ),
    examples=(
        Example("sick", _run("cross_entropy", target_max=0.0), "one logit under a cross entropy"),
        Example("sick", _run("mse_loss", (0.5, 0.75, 0.4), target_max=9.0), "class numbers under a squared error"),
        Example("sick", _run("cross_entropy", target_mean=0.3, **_MULTI), "several labels under a softmax"),
        Example("sick", _run("soft_margin_loss"), "0 and 1 under a margin loss"),
        Example("healthy", _run("mse_loss"), "numbers"),
        Example("healthy", _run("binary_cross_entropy_with_logits"), "yes and no"),
        Example("look-alike", _run("mse_loss", (0.8, 0.8, 1.0), target_max=9.0), "grades"),
        Example("look-alike", _run("cross_entropy", target_mean=0.125, **_MULTI), "soft labels that sum to 1"),
        Example("look-alike", _run("soft_margin_loss", target_min=-1.0), "-1 and 1"),
        Example("known miss", _run("mse_loss", (0.1, 0.2, 0.4), target_max=9.0), "names that are hard to tell"),
    ),
    decides_with=("baseline",),
)
