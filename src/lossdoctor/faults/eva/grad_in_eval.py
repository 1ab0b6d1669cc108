"""Validation builds graphs: every forward keeps what a backward would need, and no backward comes.

What you see
------------
Validation takes more memory than it needs, so that its batches must be small, or the run is killed in it; it is slower than it could be.

Why it happens
--------------
`model.eval()` changes layers such as dropout; it does not switch gradients off. That is what `torch.no_grad()` is for.

How it is told apart
--------------------
A validation pass is a stretch of forwards of the trained model that no backward follows. In each, PyTorch is asked whether gradients are
on. Forwards in eval mode that a backward follows are training, and do not count.

What to do
----------
`with torch.no_grad():`, or `torch.inference_mode()`, around validation; keep `.item()` of its losses.

When this is wrong
------------------
A pass that looks at gradients of its inputs (saliency, adversarial examples) by `torch.autograd.grad` needs its graphs. What this
costs is little as long as memory is enough, so it is advice, unless graphs are kept and memory grows, or it ran out.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.growth import grew_much
from lossdoctor.derive.strength import slope

FEW, MOST = 0.2, 0.8  # share of the passes; a script has one place that validates, so that it is nearly all or nearly none
KEPT = 4  # graphs of validation that are still alive later: they are kept, and memory grows
# Share of a forward's time that building its graph takes: .02 perceptrons, .04 convolutions, .23 a recurrent network, .25 a transformer
# (one core, 40 forwards in turn).
BUILDS = 0.1


def detect(training: Training) -> Detection | None:
    """Count the passes with gradients on."""
    rows = training.table("validation")
    known = [row for row in rows if isinstance(row.get("grad_enabled"), bool)]
    graphs = [row for row in known if row["grad_enabled"]]
    if not graphs:
        return None
    looked = (*training.rows.get("backward_graph", []), *training.rows.get("kept_graphs", []))
    counts = [row.get("kept_validation") for row in looked]
    kept = int(max((count for count in counts if isinstance(count, int | float) and 0 < count < float("inf")), default=0))
    severity: Severity | None = None if _hurts(training, kept) else "advice"
    seen = f"{len(graphs)} of {len(known)} passes with gradients on"
    note = f"{kept} of their graphs were kept until later" if kept >= KEPT else ""
    evidence = Evidence("validation", (min(row.step for row in graphs), max(row.step for row in graphs)), seen, "torch.no_grad()", note)
    return Detection(slope(len(graphs) / len(known), FEW, MOST), (evidence,), severity=severity, gain=_gain(training, graphs))


def _hurts(training: Training, kept: int) -> bool:
    """Tell whether memory ran out, or grew while graphs of validation were kept."""
    ran_out = bool((training.run_facts.get("ended") or {}).get("exception") == "OutOfMemoryError")
    return ran_out or (kept >= KEPT and grew_much(training.signals.get("memory")))


def _gain(training: Training, graphs: list[Row]) -> dict[str, float]:
    wall = training.signals.get("wall", Series.of([])).finite()
    seconds = sum(float(row["seconds"]) for row in graphs if isinstance(row.get("seconds"), int | float))
    whole = wall.last - wall.first if len(wall) > 1 else 0.0
    return {"time": BUILDS * min(1.0, seconds / whole)} if whole > 0 and seconds == seconds else {}


def _run(grad: list[bool], kept: int = 0, **facts: object) -> Training:
    passes = [Row(10 * i, {"grad_enabled": each, "began": 0.1 * i, "seconds": 0.02, "forwards": 1}) for i, each in enumerate(grad)]
    graph = [Row(0, {"kept_validation": kept, "kept": kept, "marked": kept, "nodes": 17, "reach": 0})]
    return Training(rows={"validation": passes, "backward_graph": graph}, run_facts=facts)


FAULT = Fault(
    code="EVA004",
    slug="grad-in-eval",
    title="Validation builds graphs",
    detect=detect,
    needs=("validation",),
    fix="Put torch.no_grad() (or torch.inference_mode()) around validation.",
    severity="warning",
    explains=("graph-retained", "does-not-fit"),
    examples=(
        Example("sick", _run([True] * 5), "never switched off"),
        Example("sick", _run([True] * 5, kept=12), "its losses are kept as well"),
        Example("sick", _run([True] * 3, ended={"exception": "OutOfMemoryError"}), "memory ran out"),
        Example("healthy", _run([False] * 5), "torch.no_grad()"),
        Example("healthy", _run([False]), "one pass at the end"),
        Example("look-alike", _run([False] * 9 + [True]), "one look at gradients afterwards"),
        Example("look-alike", _run([False] * 6 + [True] * 2), "a second, rare pass that needs its gradients"),
    ),
    treatment=Treatment("no_grad_in_validation", {}, moves="backward_graph", direction="down", safety="safe"),
)
