"""The score is computed wrongly: the model is better than the script says.

What you see
------------
The validation loss falls as it should, and the accuracy beside it stays low, moves with the batch size, or does not fit the loss.

Why it happens
--------------
A softmax or an argmax runs over the batch axis instead of the classes, predictions and targets are compared in another order, or
a threshold is put on logits as if they were probabilities.

How it is told apart
--------------------
Where the script compares its decisions with targets, the largest of the same outputs is compared with the same targets. Both are
counted over all rows of a pass. A decision that is right far less often than the plain largest output loses on the way from one
to the other. A softmax of the outputs over the rows of a batch is seen where it happens.

What to do
----------
Take `outputs.argmax(dim=1)` of the scores themselves and compare it with targets of the same order.

When this is wrong
------------------
A script that counts a prediction only above some confidence has a lower score on purpose.
"""

from __future__ import annotations

import math

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.strength import slope

FEWEST = 50  # rows of a pass
LITTLE, MUCH = 0.05, 0.12  # gap between both shares (starting value): ties and rounding make no more than .01
SOME = 0.005  # mean gap, of either sign, that shows that the decision is made of such a softmax
ERRORS = 4.0  # standard errors of a share
LEARNT = 0.8  # validation loss over guessing (starting value)


def detect(training: Training) -> Detection | None:
    """Compare how often the script's decisions are right with how often the largest outputs are."""
    rows = [
        row for row in training.table("validation") if row.get("largest_correct") is not None and (row.get("paired_rows") or 0) >= FEWEST
    ]
    if not rows:
        raise SignalMissing("validation")
    worst = min(_gap(row) for row in rows[len(rows) // 2 :])
    last = rows[-1]
    share = float(last["largest_correct"])
    over_rows = all(row.get("softmax_over_rows") for row in rows[len(rows) // 2 :])
    if over_rows and sum(abs(_gap(row)) for row in rows) / len(rows) > SOME:
        return _softmax_over_rows(rows)
    error = ERRORS * math.sqrt(max(share * (1 - share), 0.01) / float(last["paired_rows"]))
    if not worst > max(LITTLE, error):
        if _guesses(training, last):
            raise SignalMissing("validation", "a model that has learnt more: both decide by chance so far")
        return None
    decided = float(last.get("decided_correct") or 0.0)
    note = f"as the script decides {decided:.1%} are; {float(last['paired_rows']):.0f} rows"
    evidence = Evidence(
        "validation", (rows[0].step, last.step), f"{share:.1%} of the largest outputs are the target", "as many as the script counts", note
    )
    return Detection(0.93 * slope(worst, LITTLE, MUCH), (evidence,))


def _softmax_over_rows(rows: list[Row]) -> Detection:
    """Tell what is known of the way itself, however much it costs so far."""
    last = rows[-1]
    shares = [float(last.get(name) or 0.0) for name in ("largest_correct", "decided_correct")]
    costs = f"{shares[0]:.1%} of the largest outputs are the target, {shares[1]:.1%} are as decided"
    seen = "the softmax before the decision runs over the rows of the batch (dim=0)"
    return Detection(0.93, (Evidence("validation", (rows[0].step, last.step), seen, "over the classes (dim=1)", costs),))


def _guesses(training: Training, row: Row) -> bool:
    """Tell whether the model does little better than guessing: then any decision is right as often as another."""
    level, loss = expected_level(training), row.get("loss")
    return level is not None and loss is not None and float(loss) > LEARNT * level.guess


def _gap(row: Row) -> float:
    decided = row.get("decided_correct")
    return float(row["largest_correct"]) - float(decided if decided is not None else row["largest_correct"])


def _run(largest: float | None, decided: float | None, rows: int = 300, over_rows: int = 0) -> Training:
    fields = {
        "softmax_over_rows": over_rows,
        "rows": rows,
        "paired_rows": rows,
        "largest_correct": largest,
        "decided_correct": decided,
        "correct": decided,
    }
    return Training(signals={"loss": Series.of([2.3] * 20 + [0.2] * 20)}, rows={"validation": [Row(20, fields), Row(40, fields)]})


FAULT = Fault(
    code="EVA001",
    slug="metric-wrong",
    title="The metric is computed wrongly",
    detect=detect,
    needs=("validation",),
    fix="Decide by outputs.argmax(dim=1) and compare with the targets of the same rows.",
    severity="warning",
    explains=("overfitting", "loss-flat"),
    examples=(
        Example("sick", _run(0.95, 0.3), "softmax over the batch before the argmax"),
        Example("sick", _run(0.9, 0.1), "decisions in another order than targets"),
        Example("sick", _run(0.74, 0.71, over_rows=4), "a softmax over the rows that costs little so far"),
        Example("healthy", _run(0.95, 0.95), "the same"),
        Example("healthy", _run(0.6, 0.59), "ties"),
        Example("look-alike", _run(0.3, 0.9), "the largest is not the decision: an ensemble, a remapping"),
        Example("look-alike", _run(0.5, 0.42, rows=50), "too few rows to tell"),
        Example("look-alike", _run(0.9, 0.9, over_rows=4), "a softmax over rows that decides nothing"),
        Example("known miss", _run(0.95, 0.86), "a threshold that costs a tenth"),
    ),
)
