"""The graph is carried from batch to batch: a state that was never detached.

What you see
------------
Each iteration takes longer than the one before, and memory grows; or the second backward call ends with "Trying to backward through
the graph a second time", to which `retain_graph=True` looks like the cure.

Why it happens
--------------
The state that a recurrent network returns carries the graph of the batch that made it. Given to the next batch as it is, every
backward call walks through all batches so far.

How it is told apart
--------------------
Nodes of a graph are numbered in the order in which they were made. Before a backward call the oldest one shows how many calls the graph
reaches back, and their count how it has grown. Several losses of one forward reach back by one or two calls and do not grow. A graph
that is made once, before the loop, is old and does not grow either. Sequences of different lengths grow and are not old.

What to do
----------
Detach the state between batches: `state = tuple(each.detach() for each in state)`; then `retain_graph=True` is not needed.

When this is wrong
------------------
Where the whole history is meant, as in meta-learning through many inner steps, the graph is as long as it should be.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Location, Row, Series, Training
from lossdoctor.derive.strength import slope

# Backward calls that a graph reaches back: 0 to 2 in healthy loops (several losses, pairs of networks); one more at each call here.
NEAR, FAR = 2.0, 5.0
LIKE, GROWN = 1.1, 1.3  # times the nodes, or the seconds of backward, of the shortest graph; a small state on a large model adds little
RATIO = 2.0  # times a forward's cost that a backward costs (Hobbhahn and Sevilla 2021, "What's the backward-forward FLOP ratio")
RAISED = 0.95  # backward raised on a graph that reaches into an earlier one: nothing else does


def detect(training: Training) -> Detection | None:
    """Compare how far graphs reach back, and how they grow."""
    rows = [row for row in training.table("backward_graph") if _known(row)]
    if not rows:
        raise SignalMissing("backward_graph")
    shortest, longest = min(rows, key=_reach), max(rows, key=_reach)
    grown = max(_ratio(longest["nodes"], shortest["nodes"]), _slower(training.signals.get("backward_seconds")))
    strength = min(slope(_reach(longest), NEAR, FAR), slope(grown, LIKE, GROWN))
    if longest.get("raised") and _reach(longest) >= 1:
        strength = max(strength, RAISED)
    if not strength > 0:
        return None
    evidence = (_evidence(rows, shortest, longest), *_times(training))
    return Detection(strength, evidence, _fix(training), _where(training), gain=_gain(training))


def _known(row: Row) -> bool:
    return all(isinstance(row.get(name), int | float) and row[name] == row[name] for name in ("reach", "nodes"))


def _reach(row: Row) -> float:
    return float(row["reach"])


def _ratio(longest: float, shortest: float) -> float:
    return float(longest) / float(shortest) if shortest > 0 else 1.0


def _slower(seconds: Series | None) -> float:
    """Return how many times as long backward takes in the last third of the steps as in the first; 1 where that is not known."""
    known = seconds.finite().values if seconds is not None else np.array([])
    third = len(known) // 3
    return _ratio(float(np.median(known[-third:])), float(np.median(known[:third]))) if third >= 3 else 1.0


def _evidence(rows: list[Row], shortest: Row, longest: Row) -> Evidence:
    seen = (
        f"the graph reaches {longest['reach']:.0f} backward calls back: {shortest['nodes']:.0f} nodes at first, {longest['nodes']:.0f} then"
    )
    note = "backward ended with an error there" if longest.get("raised") else ""
    span = sorted((rows[0].step, longest.step))
    return Evidence("backward_graph", (span[0], span[1]), seen, "at most two calls, and no growth", note)


def _times(training: Training) -> tuple[Evidence, ...]:
    seconds = training.signals.get("backward_seconds", Series.of([])).finite()
    if len(seconds) < 2 or not seconds.first > 0 or seconds.last < GROWN * seconds.first:
        return ()
    seen = f"{1e3 * seconds.first:.3g} ms at first, {1e3 * seconds.last:.3g} ms at last"
    return (Evidence("backward_seconds", (int(seconds.steps[0]), int(seconds.steps[-1])), seen, "the same at every step"),)


def _gain(training: Training) -> dict[str, float]:
    """Return the share of a step that backward takes beyond what the forward lets one expect."""
    named = (training.signals.get(name, Series.of([])).finite() for name in ("forward_seconds", "backward_seconds", "wall"))
    forward, backward, wall = named
    if not len(forward) or not len(backward) or len(wall) < 2 or not wall.last > wall.first:
        return {}
    step = (wall.last - wall.first) / float(wall.steps[-1] - wall.steps[0])
    spared = float(backward.values.mean()) - RATIO * float(forward.values.mean())
    return {"time": min(1.0, max(0.0, spared / step))}


def _keeper(training: Training) -> dict[str, object]:
    found = training.run_facts.get("keepers")
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, dict) and first.get("name") else {}


def _where(training: Training) -> Location | None:
    keeper = _keeper(training)
    line = keeper.get("line")
    return Location(str(keeper.get("file")), line) if isinstance(line, int) else training.where("forward")


def _fix(training: Training) -> str:
    name = _keeper(training).get("name")
    return f"Detach `{name}` between batches, e.g. {name} = {name}.detach(); retain_graph=True is not needed then." if name else ""


def _run(reach: list[int], nodes: list[int], raised: bool = False, backward: list[float] | None = None, **facts: object) -> Training:
    rows = [Row(i, {"reach": r, "nodes": n, "raised": False}) for i, (r, n) in enumerate(zip(reach, nodes, strict=True))]
    rows[-1] = Row(rows[-1].step, {**rows[-1].fields, "raised": raised})
    signals = {"backward_seconds": Series.of(backward)} if backward else {}
    return Training(rows={"backward_graph": rows}, signals=signals, run_facts=facts)


_CALLS = list(range(20))
_STATE = [{"name": "state", "file": "train.py", "line": 39}]

FAULT = Fault(
    code="LOP009",
    slug="hidden-state-not-detached",
    title="The graph is carried from batch to batch",
    detect=detect,
    needs=("backward_graph",),
    fix="Detach the state between batches, e.g. state = tuple(each.detach() for each in state); retain_graph=True is not needed then.",
    severity="error",
    explains=("graph-retained", "does-not-fit"),
    examples=(
        Example("sick", _run(_CALLS, [16 + 5 * i for i in _CALLS], keepers=_STATE), "a state that is never detached"),
        Example("sick", _run([i % 7 for i in _CALLS], [80 + 78 * (i % 7) for i in _CALLS]), "begun anew every seven batches"),
        Example(
            "sick", _run(_CALLS, [4_000] * 20, backward=[0.01 + 0.01 * i for i in _CALLS]), "graphs too large to be counted, and slower"
        ),
        Example("sick", _run([0, 1], [16, 21], raised=True), "without retain_graph: the second backward raises"),
        Example("healthy", _run([0] * 20, [17] * 20), "detached"),
        Example("healthy", _run([0] * 20, [4_000] * 20, backward=[0.1] * 20), "a large model"),
        Example("look-alike", _run([i % 2 for i in _CALLS], [17 + 30 * (i % 2) for i in _CALLS]), "a pair of networks shares a forward"),
        Example("look-alike", _run(_CALLS, [40] * 20), "a graph made once before the loop, walked through at every step"),
        Example("look-alike", _run([0] * 20, [16 + 5 * i for i in _CALLS]), "sequences that get longer"),
    ),
    treatment=Treatment("detach_state", {}, moves="backward_graph", direction="down"),
    bigger_machine=BiggerMachine("no", "the graph would grow as fast on any machine"),
)
