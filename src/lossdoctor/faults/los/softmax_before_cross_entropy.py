"""Probabilities go into a loss that turns logits into probabilities itself.

What you see
------------
Accuracy rises, slowly, and the loss stops at a floor far above zero: near ln(1 + (K - 1) / e) for K classes, 1.46 for ten. Raising
the rate does not lift the floor.

Why it happens
--------------
`cross_entropy` applies log-softmax to what it is given, and `binary_cross_entropy_with_logits` a sigmoid. Given probabilities, the
largest difference between two of its inputs is 1, so its own answer can never get near certain and its gradients stay small. The same
confusion the other way round: `nll_loss` and `kl_div` want log-probabilities and are given probabilities or plain scores.

How it is told apart
--------------------
Every row that enters the loss is non-negative and sums to one at all sampled steps, which logits never do by chance. Log-probabilities
are negative, and passing them to `cross_entropy` changes nothing. For the binary loss every value lies in [0, 1] and was made by
a sigmoid. A low rate, label smoothing and label noise also leave a high floor, with rows that do not sum to one.

What to do
----------
Return the logits from the model and take softmax or sigmoid only where probabilities are read; or use `nll_loss` on `log_softmax`.

When this is wrong
------------------
A loss term that is meant to compare bounded scores; it learns, with the floor above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Location, Row, Series, Training

# Calls that must agree before anything is said (starting value).
ENOUGH_CALLS = 3
# Share of rows that sum to one to 1e-3. In half precision a softmax misses it by rounding in many rows; a softmax over another
# dimension than the classes meets it by chance (starting values).
ALL_ROWS, ROUNDED_ROWS = 0.999, 0.2
# Log-probabilities are at most 0; rounding reaches no further than this.
ABOVE_ZERO = 1e-3
CERTAIN = 1.0


def detect(training: Training) -> Detection | None:
    """Look for a loss call whose input is of the wrong kind at all sampled steps."""
    if not training.has("loss_call") and not training.has("backward_graph"):
        raise SignalMissing("loss_call")
    for calls in _by_place(training.rows.get("loss_call", [])):
        check = _CHECKS.get(calls[0].get("kind"))
        if check is not None and len(calls) >= ENOUGH_CALLS:
            note = check(calls)
            if note:
                return _detection(training, calls, note)
    return _in_graph(training)


def _in_graph(training: Training) -> Detection | None:
    """Look for softmax or sigmoid right before what wants logits, in the graph of a loss that was written by hand."""
    rows = training.rows.get("backward_graph", [])
    found = [row["probability_op"] for row in rows if row.get("probability_op")]
    if len(rows) < ENOUGH_CALLS or len(found) < len(rows):
        return None
    seen = f"{found[-1].get('op')} into {found[-1].get('into')}"
    evidence = Evidence("backward_graph", (rows[0].step, rows[-1].step), seen, "logits", f"in the graphs of all {len(rows)} sampled steps")
    return Detection(CERTAIN, (evidence,), where=training.where("loss"))


def _by_place(calls: Sequence[Row]) -> list[list[Row]]:
    """Group calls by their kind and place: a model may have one sound loss and one unsound."""
    groups: dict[str, list[Row]] = {}
    for call in calls:
        groups.setdefault(f"{call.get('kind')} {call.get('where')}", []).append(call)
    return list(groups.values())


def _probabilities(call: Row) -> bool:
    share, several = call.get("rows_sum_to_one"), (call.get("classes") or 2) > 1
    made_by = str(call.get("input_op"))
    least = ROUNDED_ROWS if made_by.startswith("Softmax") else ALL_ROWS
    return share is not None and share >= least and several and "LogSoftmax" not in made_by


def _in_unit(call: Row) -> bool:
    low, high = call.get("input_min"), call.get("input_max")
    return low is not None and high is not None and low >= 0 and high <= 1


def _positive(call: Row) -> bool:
    high = call.get("input_max")
    return high is not None and math.isfinite(high) and high > ABOVE_ZERO


def _logits_wanted(calls: list[Row]) -> str:
    return "rows are non-negative and sum to one: they went through softmax before" if all(map(_probabilities, calls)) else ""


def _binary_logits_wanted(calls: list[Row]) -> str:
    sigmoid = all("Sigmoid" in str(call.get("input_op")) and "Log" not in str(call.get("input_op")) for call in calls)
    return "all values lie in [0, 1]: they went through sigmoid before" if sigmoid and all(map(_in_unit, calls)) else ""


def _logs_wanted(calls: list[Row]) -> str:
    if all(map(_probabilities, calls)):
        return "probabilities were passed where log-probabilities are wanted"
    return "values above zero were passed where log-probabilities are wanted" if all(map(_positive, calls)) else ""


_CHECKS: dict[Any, Callable[[list[Row]], str]] = {
    "cross_entropy": _logits_wanted,
    "binary_cross_entropy_with_logits": _binary_logits_wanted,
    "nll_loss": _logs_wanted,
    "kl_div": _logs_wanted,
}


def _detection(training: Training, calls: list[Row], note: str) -> Detection:
    span = (calls[0].step, calls[-1].step)
    low, high = calls[-1].get("input_min"), calls[-1].get("input_max")
    seen = "values of another kind" if low is None or high is None else f"{low:.3g} to {high:.3g}"
    evidence = [Evidence("loss_call", span, seen, _wanted(calls[0]), f"in all {len(calls)} sampled calls {note}")]
    return Detection(CERTAIN, (*evidence, *_floor(training, calls[0])), fix=_FIXES[calls[0]["kind"]], where=_where(training, calls[0]))


def _wanted(call: Row) -> str:
    return "log-probabilities, at most 0" if call["kind"] in ("nll_loss", "kl_div") else "logits, of any size and sign"


_FIXES = {
    "cross_entropy": "Remove the softmax before cross_entropy: return the logits.",
    "binary_cross_entropy_with_logits": "Remove the sigmoid before the loss: return the logits.",
    "nll_loss": "Pass log_softmax of the logits to nll_loss, or the logits to cross_entropy.",
    "kl_div": "Pass log_softmax of the logits as the first argument of kl_div.",
}


def _where(training: Training, call: Row) -> Location | None:
    place = call.get("where")
    return Location(str(place[0]), int(place[1])) if isinstance(place, list | tuple) and len(place) == 2 else training.where("loss")


def _floor(training: Training, call: Row) -> tuple[Evidence, ...]:
    """Compare the lowest loss with what probabilities allow at best: ln(1 + (K - 1) / e), all mass on the right one of K classes."""
    loss, classes = training.signals.get("loss", Series.of([])).finite(), call.get("classes")
    if call["kind"] != "cross_entropy" or not classes or not len(loss):
        return ()
    floor = math.log1p((classes - 1) / math.e)
    lowest = int(np.argmin(loss.values))
    seen = round(float(loss.values[lowest]), 4)
    return (Evidence("loss", (int(loss.steps[lowest]),) * 2, seen, f"floor {floor:.3f}", f"the lowest that {classes} probabilities allow"),)


def _run(calls: int = 4, **fields: Any) -> Training:
    common = {"kind": "cross_entropy", "classes": 10, "rows_sum_to_one": 0.0, "input_min": -4.0, "input_max": 5.0}
    rows = [Row(10 * i, {**common, "input_op": "AddmmBackward0", **fields}) for i in range(calls)]
    return Training(signals={"loss": Series.of([2.3, 1.9, 1.6, 1.5])}, rows={"loss_call": rows})


_UNIT: dict[str, Any] = {"rows_sum_to_one": 1.0, "input_min": 0.0, "input_max": 0.98}
_BY_HAND = [Row(i, {"probability_op": {"op": "SoftmaxBackward0", "into": "LogSoftmaxBackward0"}}) for i in range(4)]
_BINARY: dict[str, Any] = {"kind": "binary_cross_entropy_with_logits", "classes": None}
_LOGS: dict[str, Any] = {"input_min": -9.0, "input_max": -0.001, "input_op": "LogSoftmaxBackward0"}

FAULT = Fault(
    code="LOS001",
    slug="softmax-before-cross-entropy",
    title="Probabilities are fed to a loss that wants logits",
    detect=detect,
    needs=(),
    fix="Pass logits to the loss; take softmax or sigmoid only where probabilities are read.",
    explains=("lr-too-low", "underfitting", "vanishing-gradients", "model-too-small", "saturated-units", "loss-flat"),
    examples=(
        Example("sick", _run(input_op="SoftmaxBackward0", **_UNIT), "softmax before cross_entropy"),
        Example("sick", _run(input_op="DivBackward0", **_UNIT), "scores divided by their sum before cross_entropy"),
        Example("sick", _run(input_op="SigmoidBackward0", input_min=0.01, input_max=0.9, **_BINARY), "sigmoid before the loss with logits"),
        Example("sick", _run(kind="nll_loss", input_op="SoftmaxBackward0", **_UNIT), "softmax instead of log_softmax before nll_loss"),
        Example("sick", _run(kind="nll_loss"), "logits into nll_loss"),
        Example("sick", Training(rows={"backward_graph": _BY_HAND}), "softmax before a log_softmax in a loss by hand"),
        Example("healthy", _run(), "logits into cross_entropy"),
        Example("healthy", _run(kind="nll_loss", **_LOGS), "log_softmax into nll_loss"),
        Example("look-alike", _run(**_LOGS), "log_softmax into cross_entropy: harmless"),
        Example("look-alike", _run(rows_sum_to_one=0.02, input_min=0.0, input_max=3.0, input_op="ReluBackward0"), "scores after relu"),
        Example("look-alike", _run(input_min=0.0, input_max=1.0, **_BINARY), "small logits without a sigmoid"),
        Example(
            "look-alike", _run(kind="binary_cross_entropy", input_op="SigmoidBackward0", input_min=0.0, input_max=1.0), "its right partner"
        ),
        Example("known miss", _run(input_op="MulBackward0", rows_sum_to_one=0.0, input_min=0.0, input_max=9.8), "softmax times ten"),
    ),
    plants=(
        Plant("middle", "model", r"return self\.head\(x\)", "return torch.softmax(self.head(x), -1)", kinds=("classifier",)),
        Plant("mild", "model", r"return self\.head\(x\)", "return torch.softmax(2 * self.head(x), -1)", kinds=("classifier",)),
        Plant(
            "severe", "model", r"return self\.head\(x\)", "return torch.softmax(torch.softmax(self.head(x), -1), -1)", kinds=("classifier",)
        ),
    ),
    treatment=Treatment("pass_logits", {}, moves="loss", direction="down"),
)
