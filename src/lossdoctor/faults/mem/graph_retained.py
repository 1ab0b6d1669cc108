"""Memory grows: losses, figures or states are kept with the graph that they were computed by.

What you see
------------
Memory grows step by step although every batch has the same shape, until the run is killed. Often it falls back at each epoch.

Why it happens
--------------
A tensor that carries a gradient holds all that its gradient would need. `total += loss`, a list of outputs, a figure of merit
that is averaged, an attribute of a logger: each keeps the activations of its step alive, for as long as it lives itself.

How it is told apart
--------------------
The graph of some steps' outputs and losses is marked, in a way that holds nothing alive. Three backward calls later, when nothing of a
healthy step is left, most of the marks are still there. A cache of the data that fills, or a growing list of plain numbers, makes
memory grow as well and keeps no graph. The names in the script that carry old graphs are looked up once.

What to do
----------
Keep numbers: `.item()`, or `.detach()` where a tensor is wanted. In validation: `torch.no_grad()` around all of it.

When this is wrong
------------------
Losses of many micro-batches that are kept on purpose for one backward call do not count; outputs that are kept over several
calls and then dropped look the same for that while, and are advice as long as memory does not grow.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence, Severity
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Location, Row, Series, Training
from lossdoctor.derive.growth import grew_much, growth
from lossdoctor.derive.strength import slope

# Marked graphs that are alive three backward calls later: none in healthy loops; all of them, one or two a step, in leaking ones.
FEW, MANY = 3, 8
SOME, MOST = 0.2, 0.5  # share of those that were marked: a bounded queue of some steps is below it in the long run


def detect(training: Training) -> Detection | None:
    """Count the graphs of earlier steps that are alive, and see how much memory grew meanwhile."""
    rows = [row for row in (*training.table("backward_graph"), *training.rows.get("kept_graphs", [])) if _counts(row)]
    if not rows:
        raise SignalMissing("backward_graph")
    worst = max(rows, key=lambda row: float(row["kept"]))
    kept, marked = float(worst["kept"]), float(worst["marked"])
    strength = min(slope(kept, FEW, MANY), slope(kept / marked if marked else 0.0, SOME, MOST))
    if not strength > 0:
        return None
    memory = training.signals.get("memory", Series.of([])).finite()
    grown, early = growth(memory)
    severity: Severity | None = None if grew_much(memory) else "advice"
    gain = {"time": 0.0, "memory": grown}
    names = _keepers(training)
    return Detection(strength, _evidence(rows, worst, memory, grown, early), _fix(names, worst), _where(names), severity, gain)


def _counts(row: Row) -> bool:
    return all(isinstance(row.get(name), int | float) and row[name] == row[name] for name in ("kept", "marked"))


def _evidence(rows: list[Row], worst: Row, memory: Series, grown: float, early: float) -> tuple[Evidence, ...]:
    seen = f"{worst['kept']:.0f} of {worst['marked']:.0f} marked graphs of earlier steps are alive"
    span = (min(row.step for row in rows), worst.step)
    found = [Evidence("backward_graph", span, seen, "none, three backward calls later")]
    if grown > 0:
        told = f"grew by {grown / 1e6:,.0f} MB from {early / 1e6:,.0f} MB"
        found.append(Evidence("memory", (int(memory.steps[0]), int(memory.steps[-1])), told, "level once the first steps are over"))
    return tuple(found)


def _keepers(training: Training) -> list[dict[str, Any]]:
    found = training.run_facts.get("keepers")
    return [each for each in found if isinstance(each, dict) and each.get("name")] if isinstance(found, list) else []


def _where(names: list[dict[str, Any]]) -> Location | None:
    return next((Location(str(each["file"]), int(each["line"])) for each in names if each.get("file") and each.get("line")), None)


def _fix(names: list[dict[str, Any]], worst: Row) -> str:
    if not names:
        left = worst.get("kept_validation") or 0
        return "Validate under torch.no_grad(), and keep numbers, not tensors: .item()." if left * 2 > worst["kept"] else ""
    listed = ", ".join(f"`{each['name']}`" + (f" (line {each['line']})" if each.get("line") else "") for each in names)
    holds = "holds" if len(names) == 1 else "hold"
    return f"{listed} {holds} graphs of steps that are over: keep .item(), or .detach() where a tensor is wanted."


def _run(kept: list[int], marked: list[int], memory: list[float] | None = None, **facts: object) -> Training:
    """Build a training with so many graphs alive of those marked, and memory in MB, at each step."""
    rows = [Row(i, {"kept": k, "marked": m, "nodes": 17, "reach": 0}) for i, (k, m) in enumerate(zip(kept, marked, strict=True))]
    signals = {"memory": Series.of([1e6 * each for each in memory])} if memory else {}
    return Training(rows={"backward_graph": rows}, signals=signals, run_facts=facts)


_MARKED = [max(0, 2 * (i - 2)) for i in range(20)]
_NAMED = [{"name": "total", "file": "train.py", "line": 31}]

FAULT = Fault(
    code="MEM001",
    slug="graph-retained",
    title="Memory grows: losses or states kept with their graph",
    detect=detect,
    needs=("backward_graph",),
    fix="Keep numbers, not tensors with their graph: .item(), or .detach() where a tensor is wanted.",
    severity="warning",
    explains=("does-not-fit",),
    examples=(
        Example("sick", _run(_MARKED, _MARKED, [400 + 20 * i for i in range(20)], keepers=_NAMED), "a loss that is added up"),
        Example("sick", _run([i // 2 for i in _MARKED], _MARKED, [400 + 20 * i for i in range(20)]), "outputs in a list"),
        Example("sick", _run(_MARKED, _MARKED, [400.0] * 20), "a small graph, of which memory shows nothing"),
        Example("healthy", _run([0] * 20, _MARKED, [400.0] * 20), "nothing is kept"),
        Example("healthy", _run([0] * 20, _MARKED), "memory was not measured"),
        Example("look-alike", _run([0] * 20, _MARKED, [400 + 20 * i for i in range(20)]), "a cache of decoded data fills"),
        Example("look-alike", _run([min(i, 3) for i in _MARKED], _MARKED, [400.0] * 20), "the last outputs are kept for the next step"),
        Example("known miss", _run([0] * 4, [0, 0, 0, 2], [400, 500, 600, 700]), "ends after four steps"),
    ),
    plants=(
        Plant("mild", "loop", r"total \+= loss\.item\(\)", "total = total + loss", kinds=("loader", "language-model")),
        Plant(
            "middle",
            "loop",
            r"^EPOCHS = (\d+)$",
            r"EPOCHS = \1\nkept = []",
            kinds=("loader", "language-model"),
            also=(("loop", r"^( +)optimizer\.step\(\)$", r"\1optimizer.step()\n\1kept.append(loss)"),),
        ),
    ),
    treatment=Treatment("detach_losses", {}, moves="backward_graph", direction="down", safety="safe"),
    bigger_machine=BiggerMachine("no", "more memory would only fill later"),
)
