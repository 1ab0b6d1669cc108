"""Every rank sees the same data: the work is done several times over.

What you see
------------
Four devices, and an epoch takes as long as on one; or it is as many steps as on one device.

Why it happens
--------------
Each process builds its loader by itself. Without a `DistributedSampler` each goes through all of the data, and with one seed for
all even in the same order. The gradients that are averaged are then one and the same.

How it is told apart
--------------------
Each rank writes a record of its own, with hashes of the rows of sampled batches. Those of the same step are compared between ranks:
parts of the data have none in common.

What to do
----------
`DistributedSampler(dataset)` with `sampler.set_epoch(epoch)` at each epoch; in a framework, its own way to prepare a loader.

When this is wrong
------------------
Ranks that share a model (tensor or pipeline parallel) are meant to see the same rows. Ranks that go through all of the data, each in
an order of its own, have hardly a row in common at a step, and are missed. Ranks must be watched each:
`torchrun ... -m lossdoctor run train.py`.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Training
from lossdoctor.derive.strength import slope

# Share of the rows of a step that two ranks have in common: none where the data are shared out, all where they are not. Between the
# bounds lie small data sets with rows that occur several times.
CHANCE, SAME = 0.3, 0.8
FEWEST = 3  # steps that were sampled on both ranks


def detect(training: Training) -> Detection | None:
    """Compare the rows of the same steps between ranks."""
    ranks = training.run_facts.get("ranks")
    if not isinstance(ranks, list) or len(ranks) < 2:
        raise SignalMissing("ranks")
    found = [(_share(one, other), one.get("rank"), other.get("rank")) for one, other in combinations(ranks, 2)]
    known = [each for each in found if each[0] is not None]
    if not known:
        return None
    share = float(np.median([each[0] for each in known if each[0] is not None]))
    strength = slope(share, CHANCE, SAME)
    if not strength > 0:
        return None
    seen = f"ranks {known[0][1]} and {known[0][2]} have {share:.0%} of the rows of a step in common"
    return Detection(strength, (Evidence("ranks", (0, max(0, training.steps - 1)), seen, "none"),), where=training.where("loader"))


def _share(one: dict[str, Any], other: dict[str, Any]) -> float | None:
    """Return the share of rows that two ranks have in common at the steps that were sampled on both."""
    first, second = one.get("hashes") or {}, other.get("hashes") or {}
    steps = [step for step in first if step in second and first[step] and second[step]]
    if len(steps) < FEWEST:
        return None
    return float(np.mean([len(set(first[step]) & set(second[step])) / len(set(first[step])) for step in steps]))


def _run(*rows: dict[str, list[str]]) -> Training:
    return Training(run_facts={"ranks": [{"rank": i, "hashes": hashes} for i, hashes in enumerate(rows)]})


def _rows(first: int, count: int = 8) -> dict[str, list[str]]:
    return {str(step): [f"{1000 * step + first + i:x}" for i in range(count)] for step in range(6)}


FAULT = Fault(
    code="DST002",
    slug="sampler-not-distributed",
    title="Every rank sees the same data",
    detect=detect,
    needs=(),
    fix="Give each rank its part of the data: DistributedSampler, with set_epoch at each epoch.",
    severity="error",
    examples=(
        Example("sick", _run(_rows(0), _rows(0)), "the same rows in the same order"),
        Example("sick", _run(_rows(0), _rows(1), _rows(0)), "nearly the same, on three ranks"),
        Example("healthy", _run(_rows(0), _rows(100)), "parts"),
        Example("healthy", _run(_rows(0), _rows(100), _rows(200), _rows(300)), "four parts"),
        Example("look-alike", _run(_rows(0), _rows(6)), "some rows occur twice"),
        Example("look-alike", _run(_rows(0), {"0": _rows(0)["0"]}), "one step in common is no proof"),
    ),
)
