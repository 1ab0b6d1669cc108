"""Layers that the model uses and does not hold: its `parameters()` miss them.

What you see
------------
The network fits worse than its size promises, as if some layers stayed at their random start, which they do. `model.to(device)`
fails on a GPU, and a loaded checkpoint does not bring the model back.

Why it happens
--------------
The layers stand in a plain list or dict, or are made inside `forward`. Only modules that are attributes, or in `nn.ModuleList`,
`nn.ModuleDict` or `nn.Sequential`, are found.

How it is told apart
--------------------
The graph behind the loss reaches parameters that belong to no model that was called and that no optimiser holds. A second network
without an optimiser is called as a model itself, and is judged as one whose parameters the optimiser lacks.

What to do
----------
Hold the layers in an `nn.ModuleList` or `nn.ModuleDict`; make none in `forward`.

When this is wrong
------------------
Fixed random layers that are kept out on purpose still get gradients for nothing; set `requires_grad_(False)` on them.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training

# Shares of all elements that the loss reaches (starting values): a scale that is missed costs little, a layer some, several much.
SMALL, LARGE = 0.01, 0.1


def detect(training: Training) -> Detection | None:
    """Look for parameters that the graph reaches and nobody holds, to the end of the run."""
    if training.fact("what") == "manual":
        return None
    rows = training.table("coverage")
    known = [row for row in rows if row.get("unregistered") is not None]  # else nobody looked which leaves the graph has
    late = known[len(known) // 2 :]
    if not late or any(not row["unregistered"] for row in late) or rows[-1].get("held") != late[-1].get("held"):
        return None  # none, or the optimiser was given some since
    last = late[-1]
    missed = int(last.get("unregistered_elements") or 0)
    share = missed / (missed + int(last.get("model_elements") or 0)) if missed else 1.0
    severity: Severity = "advice" if share < SMALL else "warning" if share < LARGE else "error"
    seen = f"{last['unregistered']} parameters, {share:.0%} of the elements"
    evidence = Evidence("coverage", (late[0].step, last.step), seen, "0", "used on the way to the loss, in no module and no optimiser")
    return Detection(0.96, (evidence,), severity=severity)


def _run(*unregistered: int, elements: int = 4000, **facts: Any) -> Training:
    common = {"held": 4, "missed": 0, "model_elements": 6_000}
    rows = [
        Row(10 * i, {**common, "unregistered": count, "unregistered_elements": elements * bool(count)})
        for i, count in enumerate(unregistered)
    ]
    return Training(signals={"loss": Series.of([2.3] * 40)}, rows={"coverage": rows}, facts={"what": "optimizer", **facts})


def _unseen_at_last(held: int) -> Training:
    run = _run(2, 2, 2)
    run.rows["coverage"].append(Row(30, {"held": held, "missed": 0, "model_elements": 6_000}))
    return run


FAULT = Fault(
    code="ARC006",
    slug="module-unregistered",
    title="Layers the optimiser cannot see",
    detect=detect,
    needs=("coverage",),
    fix="Hold the layers in nn.ModuleList or nn.ModuleDict instead of a plain list or dict.",
    explains=("optimizer-lacks-parameters", "lr-too-low", "model-too-small", "loss-flat", "underfitting", "labels-meaningless"),
    examples=(
        Example("sick", _run(6, 6, 6, 6), "hidden layers in a list"),
        Example("sick", _run(1, 1, 1, 1, elements=9), "a scale made by hand: advice"),
        Example("healthy", _run(0, 0, 0, 0), "all registered"),
        Example("healthy", _run(0), "looked at once"),
        Example("look-alike", _run(2, 2, 0, 0), "handed to the optimiser later"),
        Example("look-alike", _run(3, 3, what="manual"), "a loop that holds its tensors by hand"),
        Example("sick", _unseen_at_last(held=4), "at the last look nobody looked for them"),
        Example("look-alike", _unseen_at_last(held=6), "the optimiser was given them since"),
        Example("known miss", _run(4, 0, 4, 0), "layers used at every second step only"),
    ),
    plants=(
        Plant(
            "middle",
            "model",
            r"^model = Network\(\)$",
            # An attribute that is no module's, as a layer within a plain list is.
            "model = Network()\nvars(model)['body'] = model._modules.pop('body')",
            kinds=("loader", "regression", "language-model"),
        ),
    ),
    treatment=Treatment("hold_all_parameters", {}, moves="loss", direction="down"),
)
