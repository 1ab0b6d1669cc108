"""More threads than cores: they wait for one another.

What you see
------------
Steps are slow and uneven, and the processor looks fully used.

Why it happens
--------------
`torch.set_num_threads`, `OMP_NUM_THREADS`, or several processes that each take all cores: at the end of each parallel operation the threads
wait for the last one, which has no core to run on.

How it is told apart
--------------------
A captured step is timed with the run's own number of threads, with one for each core and with one alone, in turn. It is present where
the run has more threads than there are cores and fewer of them are clearly faster.

What to do
----------
Leave the number of threads alone, or set it to the number of cores that this process may use, divided among processes and loader workers.

When this is wrong
------------------
Other work on the machine makes many threads slow for as long as it lasts.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# How many times as fast with fewer threads: within 1.1 by chance; twice as many threads as cores cost 1.3 or more. Starting values.
CHANCE, CLEAR = 1.1, 1.3


ASKED = 0.5  # strength of more threads than cores alone: worth a measurement, says nothing by itself


def detect(training: Training) -> Detection | None:
    """Compare the step's time with the run's threads with that of fewer; where that was not measured, count threads and cores."""
    if not training.has("throughput"):
        return _by_count(training.fact("threads"), training.run_facts.get("cores"))
    facts = training.experiment("throughput")
    threads, cores, seconds = facts.get("threads"), facts.get("cores"), facts.get("seconds_by_threads")
    if not isinstance(threads, int) or not isinstance(cores, int) or not isinstance(seconds, dict) or threads <= cores:
        return None
    known = {int(count): value for count, value in seconds.items() if isinstance(value, int | float) and value > 0}
    fewer = {count: value for count, value in known.items() if count <= cores}
    if threads not in known or not fewer:
        return None
    best = min(fewer, key=lambda count: fewer[count])
    factor = known[threads] / fewer[best]
    seen = f"{threads} threads on {cores} cores, {1e3 * known[threads]:.3g} ms a step"
    note = f"{best} threads take {1e3 * fewer[best]:.3g} ms: {factor:.2g} times as fast"
    fix = f"torch.set_num_threads({best}), or leave it alone"
    evidence = (Evidence("throughput", (0, 0), seen, f"at most {cores} threads", note),)
    return Detection(slope(factor, CHANCE, CLEAR), evidence, fix, gain={"time": _saved(training, known[threads], fewer[best])})


def _by_count(threads: object, cores: object) -> Detection | None:
    if not isinstance(threads, int) or not isinstance(cores, int) or threads <= cores:
        return None
    return Detection(ASKED, (Evidence("threads", (0, 0), f"{threads} threads on {cores} cores", f"at most {cores} threads"),))


def _saved(training: Training, now: float, then: float) -> float:
    """Return the share of a step that fewer threads would save: of its compute, the rest of the step stays."""
    wall = training.signals.get("wall", Series.of([])).finite()
    step = float(np.median(np.diff(wall.values))) if len(wall) > 1 else 0.0
    return min(1.0, max(0.0, (now - then) / max(step, now)))


def _run(threads: int, cores: int, **seconds: float) -> Training:
    by_threads = {name.removeprefix("with_"): value for name, value in seconds.items()}
    facts = {"threads": threads, "cores": cores, "seconds_by_threads": by_threads}
    return Training(facts={"threads": threads}, experiments={"throughput": Experiment("throughput", "done", 1.0, facts)})


FAULT = Fault(
    code="PRF004",
    slug="threads-oversubscribed",
    title="More threads than cores",
    detect=detect,
    needs=("threads",),
    decides_with=("throughput",),
    fix="Set the number of threads to the number of cores that this process may use.",
    severity="warning",
    examples=(
        Example("sick", _run(16, 2, with_16=0.2, with_2=0.03, with_1=0.04), "eight times as many as cores"),
        Example("sick", _run(8, 4, with_8=0.05, with_4=0.03, with_1=0.09), "twice as many as cores"),
        Example("healthy", _run(4, 4, with_4=0.03, with_1=0.09), "one for each core"),
        Example("healthy", _run(1, 8, with_1=0.09, with_8=0.03), "one alone"),
        Example("look-alike", _run(8, 4, with_8=0.031, with_4=0.03, with_1=0.09), "more than cores, and no slower"),
        Example("look-alike", Training(facts={"threads": 8}, run_facts={"cores": 4}), "more than cores, and nothing was measured"),
        Example("look-alike", _run(2, 2, with_2=2.0, with_1=0.04), "as many as cores, which other work holds"),
    ),
)
