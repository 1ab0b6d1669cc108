"""Every worker of the data loader draws the same random numbers.

What you see
------------
Little that is visible: augmentation helps less than it should, since each draw comes as often as there are workers, or the same draws come
at every epoch.

Why it happens
--------------
The data set holds a random generator of its own, which every worker gets a copy of, in the same state; or `worker_init_fn` gives all
workers one seed.

How it is told apart
--------------------
Two workers are started as the loader starts them, and each reads one example several times. The data set draws, since an example differs
from one reading to the next in one process; and the first, second, third reading of one worker is that of the other.

What to do
----------
Draw with torch's own generator, which each worker seeds by itself, or seed the data set's generator in `worker_init_fn` from
`torch.initial_seed()`.

When this is wrong
------------------
A data set that draws from a fixed list on purpose.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training

ALL = 0.75  # share of readings that are the same in both workers: 0 or 1 but for small sets of draws (starting value)


def detect(training: Training) -> Detection | None:
    """Look for readings that are the same in two workers."""
    facts = training.experiment("loader")
    alike, workers = facts.get("workers_alike"), int(facts.get("workers") or 0)
    if alike is None or not facts.get("draws") or not float(alike) >= ALL or workers < 2:
        return None
    note = "one example read by two workers, one reading after the other"
    return Detection(0.93, (Evidence("loader", (0, 0), f"{float(alike):.0%} of the readings are the same", "0%", note),))


def _run(alike: float | None, draws: bool = True, workers: int = 2) -> Training:
    facts = {"rows": 500, "workers": workers, "shuffle": True, "draws": draws, "workers_alike": alike}
    return Training(signals={"loss": Series.of([2.3, 1.0])}, experiments={"loader": Experiment("loader", "done", 0.5, facts)})


FAULT = Fault(
    code="PIP003",
    slug="worker-seeds-equal",
    title="Every loader worker draws the same random numbers",
    detect=detect,
    needs=("loader",),
    fix="Draw with torch's generator, or seed the data set's own in worker_init_fn from torch.initial_seed().",
    severity="warning",
    examples=(
        Example("sick", _run(1.0), "a generator of its own"),
        Example("sick", _run(0.8, workers=4), "four workers"),
        Example("healthy", _run(0.0), "other draws in each"),
        Example("healthy", _run(None, draws=False), "nothing is drawn"),
        Example("look-alike", _run(0.25), "a coin that fell alike once"),
        Example("look-alike", _run(None, workers=0), "without workers"),
        Example("known miss", _run(0.5), "one of two augmentations draws alike"),
    ),
    decides_with=("loader",),
)
