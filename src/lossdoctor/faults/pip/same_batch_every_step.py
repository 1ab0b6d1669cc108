"""Every step sees the same batch.

What you see
------------
The training loss falls to nothing in few steps, validation stays at chance.

Why it happens
--------------
The batch is fetched once before the loop, or with `next(iter(loader))` inside it, which begins anew each time; an index is never
raised.

How it is told apart
--------------------
The rows of all sampled batches are hashed. They are the same rows at every step, although the loader's data set has more. A batch
that is the whole data set is full-batch training.

What to do
----------
Loop over the loader: `for x, y in loader:`.

When this is wrong
------------------
A script that means to memorise one batch, as a test of its model.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training

LEAST_LOOKS, LEAST_STEPS = 4, 8
MORE = 1.5  # rows of the data set over those of the batch


def detect(training: Training) -> Detection | None:
    """Look for one set of rows in all sampled batches, of a data set that has more."""
    looks = [row for row in training.table("row_hashes") if row.get("hashes")]
    if len(looks) < LEAST_LOOKS or looks[-1].step < LEAST_STEPS or training.roles:
        return None
    sets = [frozenset(row["hashes"]) for row in looks]
    loader = training.fact("loader") or {}
    whole, size = loader.get("rows"), loader.get("batch_size") or len(sets[0])
    if len(set(sets)) != 1 or len(sets[0]) < 2 or not whole or not float(whole) > MORE * max(float(size), len(sets[0])):
        return None
    span = (looks[0].step, looks[-1].step)
    note = f"the {len(sets[0])} rows of the first batch, of a data set of {int(whole)}"
    seen = Evidence("row_hashes", span, f"the same rows in {len(looks)} sampled steps", "other rows at each", note)
    return Detection(0.96, (seen,), where=training.where("loader"))


def _run(*batches: str, rows: int | None = 500, **facts: Any) -> Training:
    looks = [
        Row(4 * place, {"hashes": [f"{letter}{row}" for row in range(16)], "target_hashes": None}) for place, letter in enumerate(batches)
    ]
    loader = {"rows": rows, "batch_size": 16, "shuffle": False}
    return Training(signals={"loss": Series.of([2.3, 0.0])}, rows={"row_hashes": looks}, facts={"loader": loader, **facts})


FAULT = Fault(
    code="PIP004",
    slug="same-batch-every-step",
    title="The same batch at every step",
    detect=detect,
    needs=("row_hashes",),
    fix="Loop over the loader instead of fetching one batch: next(iter(loader)) begins anew each time.",
    explains=("overfitting", "too-few-examples", "memorisation-staircase", "labels-meaningless", "split-shift", "val-better-than-train"),
    examples=(
        Example("sick", _run(*"aaaaa"), "next(iter(loader))"),
        Example("sick", _run(*"aaaa", rows=40), "a small data set"),
        Example("healthy", _run(*"abcde"), "other rows at each step"),
        Example("healthy", _run(*"ababa"), "two batches"),
        Example("look-alike", _run(*"aaaaa", rows=16), "full-batch training"),
        Example("look-alike", _run(*"aaa"), "seen three times only"),
        Example("known miss", _run(*"aaaaa", rows=None), "a data set without a length"),
    ),
)
