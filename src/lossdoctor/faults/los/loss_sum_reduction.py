"""The loss is summed over the batch: its size, and the step, follow the number of rows.

What you see
------------
A loss in the hundreds, a rate that suits other scripts is far too large here, and another batch size asks for another rate. Beside a
second term that is averaged, one of both drowns the other.

Why it happens
--------------
`reduction="sum"`, `.sum()` where `.mean()` was meant, or one term of several is summed and the others are averaged.

How it is told apart
--------------------
The loss of a batch is compared with those of its halves: a mean is the mean of theirs, a sum is twice that. Adam, which divides by the
size of the gradient, does not mind: a summed loss of one term is a warning with plain descent that fails, else advice. Terms of which some
are sums and some are means are a warning where the sums drown the rest.

What to do
----------
Take the mean over rows of every term, and then choose the rate.

When this is wrong
------------------
A sum with a rate that was chosen for it: a fact, no fault, and told as advice.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome

# The loss over the mean of its halves: 1 for a mean, 2 for a sum; batch norm and noise move it by a tenth (starting values).
MEAN, SUM = (0.8, 1.25), (1.75, 2.25)
LEAST_ROWS = 8
DROWNS = 0.9  # share of the gradient that comes from other terms than the main one
FOLLOWING = ("SGD", "ASGD", "LBFGS")  # optimisers whose step follows the size of the gradient


def detect(training: Training) -> Detection | None:
    """Compare the loss of a batch with those of its halves, and weigh what came of it."""
    facts = training.experiment("objective")
    if int(facts.get("rows") or 0) < LEAST_ROWS or training.roles:
        return None
    terms = [each for each in facts.get("terms") or () if isinstance(each, dict) and each.get("grows") is not None]
    if len(terms) > 1:
        return _mixed(training, terms)
    grows = facts.get("grows")
    if grows is None or not _within(grows, SUM):
        return None
    severity: Severity = "warning" if _harms(training) else "advice"
    seen = Evidence(
        "objective", (0, 0), f"{float(grows):.2f} times the mean of its halves", "1", "a batch's loss beside those of its halves"
    )
    return Detection(0.92, (seen,), severity=severity)


def _within(value: Any, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= float(value) <= bounds[1]


def _mixed(training: Training, terms: list[dict[str, Any]]) -> Detection | None:
    sums, means = ([each for each in terms if _within(each["grows"], bounds)] for bounds in (SUM, MEAN))
    share = float(training.found("terms").get("share") or 0.0)
    if not sums or not means or share < DROWNS:
        return None
    words = [", ".join(str(each.get("operation")) for each in part) for part in (sums, means)]
    seen = Evidence(
        "objective", (0, 0), f"summed over rows: {words[0]}; averaged: {words[1]}", "all of one kind", "by a batch and its halves"
    )
    size = Evidence("terms", (0, 0), f"{share:.0%} of the gradient comes from other terms than the main one", "a small share")
    return Detection(0.9, (seen, size))


def _harms(training: Training) -> bool:
    name = str((training.fact("optimizer") or {}).get("name") or "")
    level = expected_level(training)
    found = outcome(training.series("loss"), level.guess if level else None) if training.has("loss") else None
    return name in FOLLOWING and found is not None and found.failed


def _run(grows: float | None, optimizer: str = "SGD", end: float = 99.0, terms: tuple[float, ...] = (), share: float = 0.0) -> Training:
    each = [{"operation": f"term{number}", "grows": value} for number, value in enumerate(terms or (grows,))]
    call = Row(0, {"kind": "mse_loss", "guess_loss": 32.0, "zero_loss": 32.0, "target_mean": 0.0, "target_std": 1.0})
    done = {"objective": Experiment("objective", "done", 0.1, {"rows": 32, "grows": grows, "terms": each})}
    return Training(
        signals={"loss": Series.of([40.0] * 6 + [end] * 30)},
        rows={"loss_call": [call]},
        facts={"optimizer": {"name": optimizer, "groups": [{}]}},
        experiments=done | {"terms": Experiment("terms", "done", 0.1, {"share": share})},
    )


FAULT = Fault(
    code="LOS004",
    slug="loss-sum-reduction",
    title="Summed loss: its size follows the batch",
    detect=detect,
    needs=("objective",),
    fix="Take the mean over rows of every term of the loss, then choose the rate.",
    severity="warning",
    explains=("exploding-gradients", "lr-too-high", "loss-noisy", "loss-diverged", "clipping-too-tight"),
    examples=(
        Example("sick", _run(2.0), "a sum under plain descent that fails"),
        Example("sick", _run(1.6, "Adam", terms=(1.0, 2.0), share=0.99), "a summed divergence beside an averaged error"),
        Example("healthy", _run(1.0), "a mean"),
        Example("healthy", _run(2.0, terms=(2.0, 2.0), share=0.3), "all terms are sums, of one size"),
        Example("look-alike", _run(1.4), "neither: batch norm"),
        Example("look-alike", _run(1.1, terms=(1.0, 2.0), share=0.05), "a small summed penalty"),
        Example("known miss", _run(2.0, terms=(2.0, 1.0), share=0.5), "one of two terms is summed, and costs little"),
    ),
    plants=(Plant("middle", "loss", r"CrossEntropyLoss\(\)", r'CrossEntropyLoss(reduction="sum")', kinds=("images",)),),
    treatment=Treatment("mean_loss", {}, moves="validation", direction="down"),
    decides_with=("objective",),
)
