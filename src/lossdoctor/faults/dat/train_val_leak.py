"""The same examples, or nearly the same, are trained on and validated on.

What you see
------------
The validation score is high, about as good as on the training data, and the model fails on data that are really new.

Why it happens
--------------
Rows were duplicated (oversampled, augmented, joined) before they were split; the same file is in both folders; windows that
overlap, or several records of one patient, speaker or scene, were split at random.

How it is told apart
--------------------
Validation rows are compared with captured training rows. Equal ones are counted, where there are so many possible rows that none
are equal by chance; a pass over the training data itself is known by the share of known rows that such a pass shows. Nearly equal
ones are known by a jump: in data of some dimension the distance to the k-th neighbour grows evenly with k, and where groups were
split the nearest one is nearer than that by a factor, for validation rows as for training rows among themselves. Where groups
were kept together only training rows show it.

What to do
----------
Drop duplicates, then split; split by patient, speaker, scene or time (`GroupKFold`, `TimeSeriesSplit`); duplicate and augment
after the split.

When this is wrong
------------------
A script that validates only on a part of its training data, on purpose, and has duplicates in it looks alike.
"""

from __future__ import annotations

import math
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope
from lossdoctor.derive.unseen import seen_limit

LEAST = 0.02  # share of rows: below it a few duplicates, which most data sets have (starting value)
POSSIBLE = 6.0  # decimal logarithm of how many rows are possible, above which equal ones are none by chance
NO_JUMP, JUMP = 1.3, 1.8  # .75 to 1.15 where rows are independent, 2.5 where groups of ten were split (measured on eight data sets)
CERTAIN, UNSURE = 0.9, 0.5


def detect(training: Training) -> Detection | None:
    """Look for validation rows among training rows, then for their near twins."""
    facts = training.experiment("held_out")
    distinct, features = float(facts.get("distinct") or 0), float(facts.get("features") or 0)
    if not distinct > 1 or features * math.log10(distinct) < POSSIBLE:
        return None
    return _equal(training, facts) or _near(facts)


def _equal(training: Training, facts: Any) -> Detection | None:
    same, repeated = float(facts.get("same") or 0.0), float(facts.get("repeated") or 0.0)
    if not same >= LEAST:
        return None
    over_training = same >= _limit(training)
    strength = UNSURE if over_training and repeated < LEAST else CERTAIN
    evidence = [Evidence("held_out", (0, 0), f"{same:.0%} of {facts['rows']} validation rows were trained on", "0%")]
    if repeated >= LEAST:
        evidence.append(Evidence("held_out", (0, 0), f"{repeated:.0%} of the validation rows came before in the pass", "0%", "duplicates"))
    # A text that says some things often has equal windows, and equal counts of words, on both sides of any split.
    return Detection(strength, tuple(evidence), severity="advice" if facts.get("integer") else None)


def _limit(training: Training) -> float:
    try:
        return seen_limit(training)
    except SignalMissing:
        return 0.5


def _near(facts: Any) -> Detection | None:
    jump, own = facts.get("jump"), facts.get("own_jump")
    if jump is None or own is None or not float(jump) > NO_JUMP or not float(own) > NO_JUMP:
        return None
    seen = f"the nearest training row is {float(jump):.2g} times nearer to a validation row than the spread of the data allows"
    evidence = Evidence(
        "held_out", (0, 0), seen, f"below {NO_JUMP}", f"among training rows it is {float(own):.2g} times: they come in groups"
    )
    return Detection(CERTAIN * slope(float(jump), NO_JUMP, JUMP), (evidence,))


def _run(same: float = 0.0, jump: float = 1.0, own: float = 1.0, repeated: float = 0.0, **fields: Any) -> Training:
    facts = {
        "rows": 480,
        "trained": 1100,
        "distinct": 390,
        "features": 4,
        "same": same,
        "repeated": repeated,
        "jump": jump,
        "own_jump": own,
    }
    done = {"held_out": Experiment("held_out", "done", 1.0, {**facts, **fields})}
    return Training(signals={"loss": Series.of([1.0, 0.3])}, experiments=done)


FAULT = Fault(
    code="DAT005",
    slug="train-val-leak",
    title="The same examples in training and validation",
    detect=detect,
    needs=("held_out",),
    fix="Drop duplicates before the split; split by group or by time, and duplicate or augment after it.",
    severity="warning",
    explains=("val-better-than-train",),
    examples=(
        Example("sick", _run(same=0.93, repeated=0.2), "oversampled before the split"),
        Example("sick", _run(same=0.2), "a fifth of the validation rows stands in the training file"),
        Example("sick", _run(jump=2.5, own=2.4, features=24), "records of one patient on both sides"),
        Example("healthy", _run(), "apart"),
        Example("healthy", _run(same=0.005), "two duplicates"),
        Example("look-alike", _run(jump=0.9, own=2.6), "groups, kept together"),
        Example("look-alike", _run(same=0.6, repeated=0.1, distinct=2, features=10), "ten bits: equal by chance"),
        Example("look-alike", _run(same=0.98), "a pass over the training data: suspected"),
        Example("known miss", _run(jump=1.2, own=1.2), "groups of two"),
    ),
    decides_with=("held_out",),
)
