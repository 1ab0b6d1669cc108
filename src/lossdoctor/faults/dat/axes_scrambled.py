"""Axes or channels stand in the wrong order, and the values with them.

What you see
------------
Nothing fails, and a network of convolutions or a recurrent one learns as little as if its inputs were noise. Pictures drawn from the
batch look like woven stripes.

Why it happens
--------------
`view` or `reshape` was used where `permute` or `transpose` was meant: the shape is right, and the values stay where they were. Or images
with channels last go into a layer that takes the first axis for channels.

How it is told apart
--------------------
In images neighbouring pixels are alike, in series neighbouring times. What enters the first layer is measured along the axes that the
layer takes for ordered, and once more after undoing a view. A fault is order that appears only then. Inputs without any order, such as
noise or tables, show none either way.

What to do
----------
`images.permute(0, 3, 1, 2)` for channels last, `series.transpose(1, 2)` for time and features; look at one picture of the batch.

When this is wrong
------------------
Images whose channels are further apart than their pixels.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

# Gain of the neighbours' correlation: at most .03 for 26 sound sets of images and series, .56 to .99 where a view is undone, .23 for
# photographs, whose channels are much alike (measured).
LITTLE, MUCH = 0.08, 0.2
ORDERED = 0.4  # correlation that inputs with an order have (starting value)


def detect(training: Training) -> Detection | None:
    """Compare how alike neighbours are as the layer takes them, and with the axes read anew."""
    facts = training.experiment("axes")
    order, undone, last = facts.get("order"), facts.get("undone"), facts.get("last")
    if order is None or undone is None:
        return None
    best = max(float(undone), float(last) if last is not None else -1.0)
    strength = 0.94 * slope(best - float(order), LITTLE, MUCH)
    if not strength > 0 or not best > ORDERED:
        return None
    shape = " x ".join(str(size) for size in facts.get("shape") or ())
    how = "a view undone" if float(undone) >= best else "the last axis taken for channels"
    note = f"neighbours in {shape} as they enter {facts.get('layer')}; {best:.2f} with {how}"
    return Detection(strength, (Evidence("axes", (0, 0), f"correlation {float(order):.2f}", f"about {best:.2f}", note),))


def _run(order: float | None, undone: float | None, last: float | None = None, layer: str = "Conv2d") -> Training:
    facts: dict[str, Any] = {"layer": layer, "shape": [32, 3, 24, 24], "channels": 3, "order": order, "undone": undone, "last": last}
    return Training(signals={"loss": Series.of([2.3, 2.2])}, experiments={"axes": Experiment("axes", "done", 0.1, facts)})


FAULT = Fault(
    code="DAT009",
    slug="axes-scrambled",
    title="Axes or channels in the wrong order (view where permute was meant)",
    detect=detect,
    needs=("axes",),
    fix="permute or transpose instead of view: images.permute(0, 3, 1, 2), series.transpose(1, 2).",
    explains=("underfitting", "labels-meaningless", "overfitting", "loss-flat", "model-too-small", "too-few-examples", "label-noise"),
    examples=(
        Example("sick", _run(0.2, 0.85), "a view of images with channels last"),
        Example("sick", _run(0.3, 0.3, 0.8), "channels last"),
        Example("sick", _run(0.1, 0.9, layer="LSTM"), "a view of series"),
        Example("healthy", _run(0.85, 0.4), "images"),
        Example("healthy", _run(0.02, 0.03), "inputs without an order"),
        Example("look-alike", _run(0.55, 0.6), "nearly the same both ways"),
        Example("look-alike", _run(0.2, 0.35), "a little order by chance"),
        Example("known miss", _run(0.7, 0.8), "very smooth images"),
    ),
    decides_with=("axes",),
)
