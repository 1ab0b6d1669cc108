"""Parameters get gradients, and no optimiser holds them.

What you see
------------
The loss falls a little and stops early, or does not move at all. A part of the model, or the whole of it, keeps the weights that it
started with.

Why it happens
--------------
The optimiser was given the parameters of another model (built before the model was replaced, copied or loaded), or of one part
only; or layers were added after the optimiser was built. `step()` moves what it was given and says nothing of the rest.

How it is told apart
--------------------
At each sampled step the parameters of the model that have a gradient are compared with those that any optimiser of the process
holds. Frozen parts have no gradient. Parts that a second optimiser moves are held. Parameters that are added later are held by
the end, so the last half of the run decides. An optimiser that moves an input or a prompt gets its gradients through a model that
it never meant to move; and a second network that only compares outputs is suspected, no more.

What to do
----------
Build the optimiser after the model is final, from `model.parameters()`; add new layers with `optimizer.add_param_group`. Set
`requires_grad_(False)` on parts that are meant to stay.

When this is wrong
------------------
A part that is left out on purpose without `requires_grad_(False)` looks like a forgotten one; its gradients are computed for
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training

# A run this short may still be setting up its optimisers (starting value).
ENOUGH_STEPS = 3
# Shares of the model's elements (starting values): a single scale or temperature that is left out costs little, a layer costs some,
# most of the model costs all.
SMALL, LARGE = 0.01, 0.1
CERTAIN, UNSURE = 0.95, 0.6


def detect(training: Training) -> Detection | None:
    """Look for parameters with a gradient that no optimiser holds, to the end of the run."""
    if training.steps < ENOUGH_STEPS:
        return None
    if training.fact("what") == "manual":
        return _left_behind(training)
    rows = training.table("coverage")
    late = rows[len(rows) // 2 :]
    if any(not (row.get("missed") or 0) for row in late) or _moves_inputs(late):
        return None
    strength = UNSURE if all(_only_behind(training, row) for row in late) else CERTAIN
    last, span = late[-1], (late[0].step, late[-1].step)
    share = _share(last)
    names = ", ".join(last.get("missed_names") or ()) or "unnamed parameters"
    seen = f"{last['missed']} parameters, {share:.0%} of the elements"
    evidence = [Evidence("coverage", span, seen, "0 parameters", f"with a gradient, in no optimiser: {names}")]
    if _holds_strangers(late):
        evidence.append(Evidence("coverage", span, f"0 of {last.get('held')} held with a gradient", "all", "it holds another model's"))
    return Detection(strength, tuple(evidence), severity=_severity(share))


def _left_behind(training: Training) -> Detection | None:
    """Look, in a loop that steps by hand, for parameters that have a gradient and stay where they are while others move."""
    moved, norms = training.series("displacements"), training.series("grad_norms")
    sizes = [int(np.prod(parameter.get("shape") or (1,))) for parameter in training.fact("parameters") or ()]
    if len(moved) < ENOUGH_STEPS or len(sizes) != moved.values.shape[-1] or norms.values.shape[-1] != len(sizes):
        return None
    most, gradient = np.nanmax(moved.values, axis=0, initial=0.0), np.nanmax(norms.values, axis=0, initial=0.0)
    known = ~np.isnan(moved.values).all(axis=0)
    still = known & (most == 0) & (gradient > 0)
    if not still.any() or not (most > 0).any():
        return None
    share = float(np.array(sizes)[still].sum() / sum(sizes))
    names = ", ".join(name for name, stays in zip(moved.names, still, strict=True) if stays)
    seen = f"{still.sum()} parameters, {share:.0%} of the elements, unchanged"
    evidence = Evidence("displacements", (int(moved.steps[0]), int(moved.steps[-1])), seen, "0 parameters", f"with a gradient: {names}")
    return Detection(CERTAIN, (evidence,), severity=_severity(share), fix="Let the loop that steps by hand go over all parameters.")


def _share(row: Row) -> float:
    whole = row.get("model_elements") or 0
    return float((row.get("missed_elements") or 0) / whole) if whole else 1.0


def _severity(share: float) -> Severity:
    return "advice" if share < SMALL else "warning" if share < LARGE else "error"


def _moves_inputs(rows: list[Row]) -> bool:
    """Tell whether the optimiser moves tensors outside the model that do get gradients: an input, a prompt, a latent."""
    return all((row.get("held_elsewhere") or 0) == (row.get("held") or 0) > 0 and (row.get("held_with_gradient") or 0) > 0 for row in rows)


def _only_behind(training: Training, row: Row) -> bool:
    """Tell whether the optimiser holds one model whole, and what it lacks is another, whole, that the first one's output enters.

    A network that only compares (a perceptual loss) is left out rightly, though its gradients are computed for nothing; a forgotten
    decoder looks the same. Names of several models carry their place in the order of calls.
    """
    own = (training.fact("model") or {}).get("trainable")
    rest = (row.get("model_elements") or 0) - (own or 0)
    behind = all(not str(name).startswith("0.") for name in row.get("missed_names") or ())
    return own is not None and own == row.get("held_elements") and rest == row.get("missed_elements") and behind


def _holds_strangers(rows: list[Row]) -> bool:
    return all((row.get("held") or 0) > 0 and row.get("held_with_gradient") == 0 for row in rows)


def _run(*missed: int, steps: int = 40, **fields: Any) -> Training:
    common = {"held": 4, "held_with_gradient": 4, "held_elsewhere": 0, "model_elements": 10_000, "missed_names": ["body.weight"]}
    each = steps // len(missed)
    rows = [Row(i * each, {**common, "missed": count, "missed_elements": 2_000 * count, **fields}) for i, count in enumerate(missed)]
    facts = {"what": "optimizer", "model": {"trainable": 8_000}}
    return Training(signals={"loss": Series.of([2.3] * steps)}, rows={"coverage": rows}, facts=facts)


def _by_hand(*displacement: float) -> Training:
    width = len(displacement)
    signals = {"displacements": Series.of([displacement] * 4), "grad_norms": Series.of([[0.3] * width] * 4), "loss": Series.of([1.0] * 40)}
    signals = {name: Series(each.steps, each.values, ("body", "head")) if name != "loss" else each for name, each in signals.items()}
    facts = {"what": "manual", "parameters": [{"shape": [64, 20]}, {"shape": [5, 64]}]}
    return Training(signals=signals, rows={"coverage": [Row(0, {"missed": 0})]}, facts=facts)


_BEHIND: dict[str, Any] = {"held_elements": 8_000, "missed_elements": 2_000, "missed_names": ["1.0.weight"]}
_BEFORE: dict[str, Any] = {**_BEHIND, "missed_names": ["0.0.weight"]}


_TORCH_OPTIMISER = ("loader", "regression", "language-model")  # not a descent of the script's own, which fails without gradients

FAULT = Fault(
    code="OPT003",
    slug="optimizer-lacks-parameters",
    title="The optimiser does not hold all parameters that learn",
    detect=detect,
    needs=("loss", "coverage"),
    fix="Build the optimiser from the parameters of the model that is trained, after the model is complete.",
    explains=("lr-too-low", "step-missing", "loss-flat", "underfitting", "model-too-small", "labels-meaningless"),
    examples=(
        Example("sick", _run(2, 2, 2, 2), "a body that no optimiser holds"),
        Example("sick", _run(4, 4, 4, held_with_gradient=0, held_elsewhere=4), "an optimiser built on another model"),
        Example("sick", _run(1, 1, 1, 1, missed_elements=5), "a temperature left out: advice"),
        Example("sick", _run(2, 2, 2, 2, **_BEFORE), "an encoder left out before a decoder"),
        Example("sick", _by_hand(0.0, 0.4), "a loop by hand that moves the head only"),
        Example("healthy", _by_hand(0.2, 0.4), "a loop by hand that moves all"),
        Example("healthy", _run(0, 0, 0, 0), "all held"),
        Example("healthy", _run(0), "all held, looked at once"),
        Example("look-alike", _run(2, 2, 0, 0), "parameters added when the body is unfrozen"),
        Example("look-alike", _run(4, 4, 4, held=1, held_with_gradient=1, held_elsewhere=1), "an input is moved through a fixed model"),
        Example("look-alike", _run(2, 2, 2, 2, **_BEHIND), "a second network that only compares: suspected"),
        Example("known miss", _run(2, 0, 2, 0), "a layer that gets a gradient at every second sample only"),
    ),
    plants=(
        Plant("middle", "optimiser", r"model\.parameters\(\)", "model.head.parameters()"),
        Plant("severe", "optimiser", r"model\.parameters\(\)", "Network().parameters()", kinds=_TORCH_OPTIMISER),
    ),
    treatment=Treatment("hold_all_parameters", {}, moves="loss", direction="down"),
)
