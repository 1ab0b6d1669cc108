"""One class dominates, and the model answers with it.

What you see
------------
A high accuracy from the first epoch on, which is the share of the frequent class. The rare classes are never answered.

Why it happens
--------------
Answering with the frequent class is the shortest way down at first; with few examples of the others in a batch their gradients drown.

How it is told apart
--------------------
The trained model is asked for captured rows: nearly all its answers are one class, and the loss is what the class frequencies alone
give. A classical model that weighs classes alike must tell the rare ones on rows held out, else there is nothing to learn. A loss clearly
below the frequencies' is learning, however uneven the classes are.

What to do
----------
Weigh the classes in the loss (`weight=`, `pos_weight=`), or draw rare rows more often (`WeightedRandomSampler`); judge by recall or average
precision instead of accuracy.

When this is wrong
------------------
A run that is slow for another reason passes through this state.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome

ONE = 0.98  # share of the answers that are one class
LEARNT = 0.9  # loss over what the frequencies give
GAIN = 0.15  # of mean recall over chance, by a model that weighs classes alike (starting value)
UNEVEN = 3.0
LEAST_ROWS, LEAST_STEPS = 200, 50


def detect(training: Training) -> Detection | None:
    """Look for answers of one class, on uneven classes that could be told."""
    facts = training.experiment("answers")
    targets, answers = ([int(each) for each in facts.get(name) or ()] for name in ("targets", "answers"))
    there = [count for count in targets if count]
    if sum(targets) < LEAST_ROWS or len(there) < 2 or max(there) < UNEVEN * min(there) or training.steps < LEAST_STEPS:
        return None
    top = targets.index(max(targets))
    told, chance = facts.get("told"), 1.0 / len(there)
    if answers[top] < ONE * sum(answers) or told is None or not float(told) > chance + GAIN or _learns(training):
        return None
    share, said = max(targets) / sum(targets), answers[top] / sum(answers)
    seen = Evidence(
        "answers", (training.steps, training.steps), f"{said:.0%} of the answers are class {top}", f"{share:.0%}", "as of the targets"
    )
    note = "mean recall of a classical model that weighs classes alike, on rows held out"
    return Detection(0.9, (seen, Evidence("answers", (0, 0), f"{float(told):.0%} could be told", f"{chance:.0%} by chance", note)))


def _learns(training: Training) -> bool:
    level = expected_level(training)
    found = outcome(training.series("loss"), level.guess if level else None) if training.has("loss") else None
    return found is None or found.level is None or level is None or found.level < LEARNT


def _run(targets: list[int], answers: list[int], told: float | None, end: float = 1.0) -> Training:
    facts: dict[str, Any] = {"rows": sum(targets), "targets": targets, "answers": answers, "told": told}
    call = Row(0, {"kind": "cross_entropy", "class_counts": [30, 2], "guess_loss": 0.23, "zero_loss": 0.693})
    return Training(
        signals={"loss": Series.of([0.7] * 10 + [0.23 * end] * 90)},
        rows={"loss_call": [call]},
        experiments={"answers": Experiment("answers", "done", 0.5, facts)},
    )


FAULT = Fault(
    code="DAT007",
    slug="class-imbalance",
    title="One class dominates and the model answers with it",
    detect=detect,
    needs=("answers", "loss"),
    fix="Weigh the classes in the loss, or draw rare rows more often; judge by recall instead of accuracy.",
    severity="warning",
    explains=("loss-flat", "underfitting", "labels-meaningless", "model-too-small", "init-ignores-prior", "too-few-epochs"),
    examples=(
        Example("sick", _run([900, 60], [960, 0], 0.85), "one of two"),
        Example("sick", _run([900, 40, 50], [985, 5, 0], 0.7, end=1.05), "one of three"),
        Example("healthy", _run([500, 460], [510, 450], None, end=0.3), "even classes"),
        Example("healthy", _run([900, 60], [905, 55], None, end=0.2), "uneven, and learnt"),
        Example("look-alike", _run([900, 60], [960, 0], 0.52), "nothing could be told"),
        Example("look-alike", _run([900, 60], [955, 5], 0.85, end=0.7), "uneven, and learning"),
        Example("known miss", _run([900, 60], [930, 30], 0.85), "a few rare answers"),
    ),
    treatment=Treatment("class_weights", {}, moves="loss_call", direction="down"),
    decides_with=("answers", "baseline"),
)
