"""Pooling, a filter or dropout stands in a place where it hurts.

What you see
------------
Training runs and the score stays below that of similar networks; or the validation loss is worse than the training loss from the start
although nothing is overfitted.

Why it happens
--------------
A stride that is larger than its filter, or pooling too early, throws parts of every input away. Filters on maps that have shrunk to a
point meet only their padding. Dropout in front of batch norm changes the spread that the norm learns, and in evaluation that spread is
another.

How it is told apart
--------------------
By gradients from the loss back to what enters each layer, with random weights: a place through which nothing comes back is never looked
at, and a tap of a filter without a gradient meets only padding. For dropout the statistics of batch norm are taken with it and without,
and the loss in evaluation mode is compared. A bias in front of a norm is without effect, costs nothing and is no fault.

What to do
----------
Let the stride be no larger than the filter and pool later; use smaller filters where the map is small; put dropout behind the last norm.

When this is wrong
------------------
Networks that look at a part of the input on purpose (the middle of a picture) have unseen places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Share of a layer's input that no output depends on: 3 to 7 % where an odd edge is left over by a window of two or three; three quarters
# for a stride of two without a wider filter (geometry).
EDGE, LOST = 0.15, 0.4
# Share of all weights that meet only padding; a quarter is where most of one large layer is (starting values).
FEW_IDLE, MANY_IDLE = 0.1, 0.3
# Loss in evaluation mode with statistics taken with dropout, over that without (starting values).
ALIKE, APART = 1.2, 1.6
SURE = 0.9


def detect(training: Training) -> Detection | None:
    """Take the clearest of unseen inputs, idle filters and shifted statistics."""
    facts = training.experiment("layout")
    found = [each for each in (_unseen(facts), _idle(facts), _shifted(facts)) if each is not None]
    return max(found, key=lambda each: each.strength, default=None)


def _unseen(facts: Mapping[str, Any]) -> Detection | None:
    layers = [each for each in facts.get("unseen") or () if isinstance(each, Mapping)]
    worst = max(layers, key=lambda each: _number(each.get("share")), default=None)
    strength = SURE * slope(_number(worst.get("share")), EDGE, LOST) if worst is not None else 0.0
    if worst is None or not strength > 0:
        return None
    note = f"of what enters {worst.get('kind')} {worst.get('name')}"
    return _told(strength, f"{worst['share']:.0%} of the places reach no output", "0%", note)


def _idle(facts: Mapping[str, Any]) -> Detection | None:
    share = _number(facts.get("idle_weights"))
    layers = [each for each in facts.get("idle") or () if isinstance(each, Mapping)]
    strength = SURE * slope(share, FEW_IDLE, MANY_IDLE)
    if not layers or not strength > 0:
        return None
    names = ", ".join(str(each.get("name")) for each in layers[:4])
    return _told(strength, f"{share:.0%} of the weights meet only padding", "0%", f"filters that are wider than their map: {names}")


def _shifted(facts: Mapping[str, Any]) -> Detection | None:
    own, alike = _number(facts.get("own")), _number(facts.get("alike"))
    strength = SURE * slope(own / alike, ALIKE, APART) if alike > 0 else 0.0
    if not strength > 0:
        return None
    return _told(strength, f"loss {own:.3g} in evaluation", f"{alike:.3g}", "batch norm learnt its spread with dropout in front of it")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _told(strength: float, seen: str, expected: str, note: str) -> Detection:
    return Detection(strength, (Evidence("layout", (0, 0), seen, expected, note),))


def _run(unseen: float = 0.0, idle: float = 0.0, own: float | None = None, alike: float | None = None) -> Training:
    facts: dict[str, Any] = {"unseen": [], "idle": [], "idle_weights": idle, "own": own, "alike": alike, "before_norm": ["0"]}
    if unseen:
        facts["unseen"] = [{"name": "0", "kind": "Conv2d", "shape": [32, 1, 28, 28], "share": unseen}]
    if idle:
        facts["idle"] = [{"name": "8", "taps": [5, 5], "share": 24 / 25}]
    return Training(signals={"loss": Series.of([2.3, 2.2])}, experiments={"layout": Experiment("layout", "done", 0.1, facts)})


FAULT = Fault(
    code="ARC011",
    slug="layer-order-wrong",
    title="A layer stands in a place that hurts",
    detect=detect,
    needs=("layout",),
    fix="Let strides be no larger than filters, and filters no larger than their map; pool later; put dropout behind the last batch norm.",
    severity="advice",
    examples=(
        Example("sick", _run(unseen=0.75), "a stride of two without a wider filter"),
        Example("sick", _run(idle=0.6), "filters of five by five on maps of one"),
        Example("sick", _run(own=0.9, alike=0.4), "dropout in front of batch norm"),
        Example("healthy", _run(), "all inputs are seen"),
        Example("healthy", _run(own=0.42, alike=0.4), "dropout behind the norms"),
        Example("look-alike", _run(unseen=0.07), "an odd edge is left over"),
        Example("look-alike", _run(idle=0.04), "one small layer on a map of two"),
        Example("known miss", _run(unseen=0.2), "a wide border is cut away"),
    ),
    decides_with=("layout",),
)
