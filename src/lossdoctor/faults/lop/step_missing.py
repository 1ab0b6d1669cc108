"""Backward runs, and the weights stay where they are.

What you see
------------
The loss stays at its first value from beginning to end, up to the noise of the batches, on training and validation data alike.
No rate makes a difference.

Why it happens
--------------
`optimizer.step()` is missing, stands behind a condition that never holds, or comes after `optimizer.zero_grad()` has cleared what
`backward()` had just computed.

How it is told apart
--------------------
Either backwards were seen, the optimiser that holds the same parameters never stepped, and they did not change; without an
optimiser only in a loop that resets gradients and validates in between, at the loss of an untrained model. Or the optimiser
stepped, and every gradient that it holds was None or zero at (nearly) every step although the backward before it had reached
the parameters. A loop that updates its weights by hand changes them. A loss scaler that skips a step does so now and then. An
optimiser that was built on another model reads differently: the model has gradients, and no optimiser holds them.

What to do
----------
Order the loop: `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`. Where the step stands behind a condition, print
how often the condition holds.

When this is wrong
------------------
A script that builds an optimiser, never means to use it, and takes gradients to look at them (saliency, adversarial inputs). A step
that a condition lets through now and then is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import broken_from, outcome

# Fewer backwards than this may be the beginning of an accumulation (starting value).
ENOUGH_STEPS = 5
# A loop that clears its gradients too early does so at every step; a few steps at the start or end may differ (starting value).
CLEARED_SHARE = 0.9
# Gradients that are exactly zero may have been cleared, or never have been anything else: a suspicion.
UNSURE = 0.6
# Weights that were compared at several steps; or once only, or not and the loss stays where it began.
CERTAIN, LIKELY = 1.0, 0.85
# Looks at the weights after which a loop without an optimiser is known to move nothing (starting value).
MANY_LOOKS = 3


def detect(training: Training) -> Detection | None:
    """Look for weights that nothing moves: no step at all, or steps without a gradient."""
    if training.steps < ENOUGH_STEPS:
        return None
    return _never_stepped(training) if training.fact("what") == "manual" else _stepped_on_nothing(training)


def _never_stepped(training: Training) -> Detection | None:
    if broken_from(training.series("loss")) is not None:
        return None
    looks, moved = _changes(training)
    idle = next((each for each in training.fact("optimizers_idle") or () if (each.get("shared") or 0) > 0), None)
    if moved or (idle is None and not (looks >= MANY_LOOKS and _tries_to_learn(training))):
        return None
    if not looks and not (idle and idle.get("zero_grad") and _is_flat(training)):
        raise SignalMissing("displacements", "let the run go on for some more steps")
    steps = (0, training.steps - 1)
    holder = f"{idle.get('name')} holds these parameters, and" if idle else "no optimiser holds these parameters, and what there is"
    note = f"{holder} never stepped in {training.steps} backwards"
    evidence = [Evidence("optimizer", steps, "0 steps", f"about {training.steps} steps", note)]
    if looks:
        evidence.append(Evidence("displacements", steps, 0.0, "above 0", f"no parameter changed, looked at {looks} times"))
    return Detection(CERTAIN if looks > 1 and idle else LIKELY, tuple(evidence), where=training.where("backward"))


def _tries_to_learn(training: Training) -> bool:
    """Tell a loop by hand that means to train from one that only takes gradients (saliency, adversarial inputs).

    It is in training mode, resets the gradients, validates again and again, and its loss is that of an untrained model.
    """
    reset = training.signals.get("not_reset", Series.of([])).finite()
    mode = training.signals.get("train_mode", Series.of([])).finite()
    clears = len(reset) > 0 and not reset.values.any()
    return clears and len(mode) > 0 and bool(mode.values.all()) and len(training.rows.get("validation", [])) > 1 and _is_flat(training)


def _is_flat(training: Training) -> bool:
    level = expected_level(training)
    course = outcome(training.series("loss"), level.guess if level else None)
    return course is not None and course.stuck


def _changes(training: Training) -> tuple[int, bool]:
    """Return how often it was looked whether the parameters change, and whether one ever did."""
    looks, moved = 0, False
    for name in ("update_ratios", "displacements"):
        series = training.signals.get(name)
        if series is not None and len(series):
            known = series.values[np.isfinite(series.values).any(axis=-1)]
            looks, moved = max(looks, len(known)), moved or bool(np.nansum(known) > 0)
    return looks, moved


def _stepped_on_nothing(training: Training) -> Detection | None:
    empty = _with_loss(training)
    if len(empty) < ENOUGH_STEPS or _gradient_elsewhere(training):
        return None
    share = float(np.mean(empty.values))
    if share < CLEARED_SHARE:
        return None
    span = (int(empty.steps[0]), int(empty.steps[-1]))
    seen = Evidence("no_gradient", span, round(share, 3), 0.0, f"{share:.0%} of {len(empty)} steps found every gradient None or zero")
    fix = "Call zero_grad() before backward(), not between backward() and step()."
    return Detection(share if _was_cleared(training) else UNSURE, (seen,), fix=fix, where=training.where("step"))


def _with_loss(training: Training) -> Series:
    """Keep the steps whose loss was not zero: a loss that is satisfied has no gradient."""
    empty, loss = training.series("no_gradient").finite(), training.series("loss")
    keep = ~np.isin(empty.steps, loss.steps[loss.values == 0])
    return Series(empty.steps[keep], empty.values[keep])


def _gradient_elsewhere(training: Training) -> bool:
    """Tell whether the model has gradients that no optimiser holds: then the optimiser is at fault, not the loop."""
    return any((row.get("missed") or 0) > 0 for row in training.rows.get("coverage", []))


def _was_cleared(training: Training) -> bool:
    """Tell gradients that were cleared from gradients that backward left at zero.

    Cleared to None is certain. Cleared to zero looks like a network of which every unit is dead; that one answers the same to
    all inputs.
    """
    norms = training.signals.get("grad_norms")
    if norms is not None and len(norms) and np.isnan(norms.values).all():
        return True
    spreads = [row.get("input_std") for row in training.rows.get("loss_call", [])]
    known = [float(spread) for spread in spreads if spread is not None and np.isfinite(spread)]
    return bool(known) and min(known) > 0


def _by_hand(change: float, shared: int, looks: int = 3, zero_grad: bool = False) -> Training:
    idle = [{"name": "Adam", "held": 4, "shared": shared, "zero_grad": zero_grad}] if shared else []
    signals = {"loss": Series.of([1.4] * 12), "displacements": Series.of([[change, change]] * looks)}
    return Training(signals=signals, facts={"what": "manual", "optimizers_idle": idle})


def _own_class(train_mode: float) -> Training:
    loop = _by_hand(0.0, shared=0, looks=4)
    loop.signals |= {"not_reset": Series.of([nan, *[0.0] * 11]), "train_mode": Series.of([train_mode] * 12)}
    loop.rows["validation"] = [Row(4, {"correct": 0.3}), Row(8, {"correct": 0.3})]
    return loop


def _stepped(no_gradient: Sequence[float], norms: Sequence[float] = (), missed: int = 0, loss: float = 2.3, **call: Any) -> Training:
    signals = {"loss": Series.of([loss] * len(no_gradient)), "no_gradient": Series.of(no_gradient)}
    if norms:
        signals["grad_norms"] = Series.of([norms], names=[str(i) for i in range(len(norms))])
    rows = {"coverage": [Row(0, {"missed": missed, "changed": 0.0})]} | ({"loss_call": [Row(0, call)]} if call else {})
    return Training(signals=signals, rows=rows, facts={"what": "optimizer"})


_TORCH_OPTIMISER = ("loader", "regression", "language-model")  # not a descent of the script's own, which fails without gradients

FAULT = Fault(
    code="LOP002",
    slug="step-missing",
    title="The weights are never moved",
    detect=detect,
    needs=("loss",),
    fix="Call optimizer.step() after loss.backward(), once per step.",
    explains=("lr-too-low", "loss-flat", "underfitting", "labels-meaningless", "model-too-small", "vanishing-gradients"),
    examples=(
        Example("sick", _by_hand(0.0, shared=4), "an optimiser that never steps, weights at rest"),
        Example("sick", _by_hand(0.0, shared=4, looks=1), "the same, looked at once"),
        Example("sick", _by_hand(0.0, shared=4, looks=0, zero_grad=True), "gradients reset, loss flat, weights never looked at"),
        Example("sick", _stepped([1.0] * 9, norms=[nan, nan]), "gradients cleared to None before the step"),
        Example("sick", _stepped([1.0] * 9, norms=[0.0, 0.0], input_std=0.7), "gradients cleared to zero before the step"),
        Example("sick", _own_class(train_mode=1.0), "a descent of the script's own that never steps"),
        Example("healthy", _stepped([0.0] * 9, norms=[0.1, 0.2]), "steps on gradients"),
        Example("healthy", _by_hand(0.1, shared=0), "weights moved by hand, no optimiser"),
        Example("look-alike", _by_hand(0.0, shared=0), "gradients taken to look at them, no optimiser"),
        Example("look-alike", _own_class(train_mode=0.0), "adversarial inputs for a model in evaluation mode"),
        Example("look-alike", _by_hand(0.1, shared=4), "an optimiser kept for its settings, weights moved by hand"),
        Example("look-alike", _stepped([1.0] * 9, norms=[0.0, 0.0], input_std=0.0), "every unit dead: backward itself gives zero"),
        Example("look-alike", _stepped([1.0] * 9, norms=[0.0, 0.0], loss=0.0, input_std=0.7), "a margin loss that is satisfied"),
        Example("look-alike", _stepped([1.0] * 9, norms=[nan, nan], missed=4), "the optimiser holds another model's parameters"),
        Example("look-alike", _stepped([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), "a few steps without a gradient"),
        Example("look-alike", _by_hand(0.0, shared=4, looks=0), "nothing known of the weights"),
        Example("known miss", _stepped([0.0] * 6), "a condition lets one backward in fifty through"),
    ),
    plants=(
        Plant("middle", "loop", r"optimizer\.step\(\)", "pass"),
        Plant("mild", "loop", r"^( +)loss\.backward\(\)$", r"\1loss.backward()\n\1optimizer.zero_grad()", kinds=_TORCH_OPTIMISER),
        Plant("severe", "loop", r"^( +)optimizer\.step\(\)$", r"\1if math.isnan(loss.item()):\n\1    optimizer.step()"),
    ),
    treatment=Treatment("step_after_backward", {}, moves="loss", direction="down"),
)
