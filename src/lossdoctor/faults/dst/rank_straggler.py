"""One rank holds the others up.

What you see
------------
All devices are busy for a part of the time only; adding more makes little difference.

Why it happens
--------------
Ranks meet at every step to add up their gradients, and all wait for the last: the one with the longest rows, the slowest disk, the hotter
device, or the one that also logs, validates and writes checkpoints.

How it is told apart
--------------------
Each rank writes a record of its own. What a step takes before the ranks meet (the gap and the forward) is compared step by step: one and
the same rank must be last nearly always, by a good part of the step. Ranks that take turns in being last are noise, or rows of different
lengths.

What to do
----------
Give that rank less to do between steps, sort rows of like length together on all ranks, check its device and its disk.

When this is wrong
------------------
Several ranks on too few cores hold one another up, and no one in particular. The backward itself is not compared, since the others wait in
it. Ranks must be watched each: `torchrun ... -m lossdoctor run train.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Training
from lossdoctor.derive.strength import slope
from lossdoctor.derive.timeline import lateness

LITTLE, MUCH = 0.08, 0.2  # share of a step by which the last rank comes later than the usual one; starting values
OFTEN, ALWAYS = 0.6, 0.85  # share of the steps in which it is the same; two equal ranks: half
FEWEST = 20  # steps after the first ones
WARM = 5


def detect(training: Training) -> Detection | None:
    """Compare what each rank takes before they meet."""
    ranks = training.run_facts.get("ranks")
    if not isinstance(ranks, list) or len(ranks) < 2:
        raise SignalMissing("ranks")
    own, step = _own_seconds(ranks), _step(ranks)
    if own is None or step is None:
        return None
    late = lateness(own.tolist())
    last = own.argmax(0)
    worst = int(np.bincount(last, minlength=len(own)).argmax())
    others = np.delete(own, worst, axis=0)
    behind = float(np.median(own[worst] - np.median(others, axis=0)))
    often = float((last == worst).mean())
    strength = min(slope(behind / step, LITTLE, MUCH), slope(often, OFTEN, ALWAYS))
    if not strength > 0:
        return None
    rank = ranks[worst].get("rank")
    seen = f"rank {rank} is last in {often:.0%} of the steps, {1e3 * behind:.3g} of {1e3 * step:.3g} ms behind"
    note = f"ranks wait {1e3 * float(np.median(late.max(0))):.3g} ms of a step for the last one"
    evidence = Evidence("ranks", (0, max(0, training.steps - 1)), seen, "all at the same time", note)
    return Detection(strength, (evidence,), gain={"time": min(1.0, behind / step)})


def _own_seconds(ranks: list[dict[str, Any]]) -> np.ndarray | None:
    """Return what each rank takes before they meet, shape (ranks, steps), of the steps that all have; None where those are too few."""
    by_rank = [dict(zip(each.get("steps") or (), each.get("own_seconds") or (), strict=False)) for each in ranks]
    steps = sorted(set.intersection(*(set(each) for each in by_rank)))[WARM:]
    values = np.array([[each[step] for step in steps] for each in by_rank], dtype=np.float64).reshape(len(ranks), len(steps))
    values = values[:, np.isfinite(values).all(0)]
    return values if values.shape[1] >= FEWEST else None


def _step(ranks: list[dict[str, Any]]) -> float | None:
    known = [each["step_seconds"] for each in ranks if isinstance(each.get("step_seconds"), int | float) and each["step_seconds"] > 0]
    return float(np.median(known)) if known else None


def _run(*own: float, turns: bool = False, count: int = 60) -> Training:
    """Build ranks that take so many seconds of steps of a tenth; `turns`: each in turn has the first one's."""
    ranks = []
    for rank, seconds in enumerate(own):
        usual = own[-1] if turns else seconds
        values = [own[0] if turns and step % len(own) == rank else usual for step in range(count)]
        ranks.append({"rank": rank, "steps": list(range(count)), "own_seconds": values, "step_seconds": 0.1})
    return Training(run_facts={"ranks": ranks})


FAULT = Fault(
    code="DST003",
    slug="rank-straggler",
    title="One rank holds the others up",
    detect=detect,
    needs=(),
    fix="Give the slow rank less to do between steps, share long rows out evenly, or check its device and disk.",
    severity="warning",
    examples=(
        Example("sick", _run(0.07, 0.03, 0.03, 0.03), "the first rank logs and validates"),
        Example("sick", _run(0.02, 0.05), "one of two has a slow disk"),
        Example("healthy", _run(0.03, 0.0301, 0.0299), "alike"),
        Example("healthy", _run(0.03, 0.032), "nearly alike"),
        Example("look-alike", _run(0.07, 0.03, 0.03, 0.03, turns=True), "each has a long row now and then"),
        Example("look-alike", _run(0.07, 0.03, count=10), "too few steps"),
    ),
)
