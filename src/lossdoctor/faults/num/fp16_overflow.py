"""Half precision overflows, and the loss scale collapses.

What you see
------------
The scaler halves its scale again and again, steps are skipped; in the end the scale is one or less, or every step is skipped.

Why it happens
--------------
Half precision holds nothing above 65,504. Activations or gradients beyond it become infinite; the scaler skips the step and halves
the scale. A scale that falls for good means that the overflow is in the forward pass, where no scale helps, or that the gradients
are not finite at all.

How it is told apart
--------------------
A scaler begins far too high and halves some times in its first steps: that is how it finds its scale. It counts when the run behind
its first quarter still loses scale, down to one or to a thousandth of what it had.

What to do
----------
Train in bfloat16, which has the range of single precision, or keep the layer that overflows in single precision; lower the rate.

When this is wrong
------------------
A log that only prints the scaler's messages hides its growth in between.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Treatment
from lossdoctor.core.run import Series, Training

LEAST_VALUES = 4
# PyTorch begins at 65,536 and DeepSpeed at 2**16 to 2**32; both allow 1 as the least. A thousandth: ten halvings.
LEAST_SCALE, COLLAPSE = 1.0, 1e-3


def detect(training: Training) -> Detection | None:
    """Follow the scale behind the first quarter of the run."""
    scale = training.series("loss_scale").finite()
    if len(scale) < LEAST_VALUES:
        return None
    half = scale.values[len(scale) // 4 :]
    begin, end, most = float(half[0]), float(half[-1]), float(scale.values.max())
    fell = end < begin
    collapsed = end <= LEAST_SCALE or end <= COLLAPSE * begin
    if most <= LEAST_SCALE or not (collapsed and (fell or end <= LEAST_SCALE)):
        return None
    span = (int(scale.steps[0]), int(scale.steps[-1]))
    seen = Evidence(
        "loss_scale", span, f"{most:.4g} to {end:.4g}", "steady after the first steps", f"{begin:.4g} after a quarter of the run"
    )
    return Detection(0.95 if end <= LEAST_SCALE else 0.85, (seen, *_skipped(training)))


def _skipped(training: Training) -> tuple[Evidence, ...]:
    skipped = training.signals.get("skipped_steps", Series.of([])).finite()
    if not len(skipped):
        return ()
    total = float(skipped.values.max() if np.all(np.diff(skipped.values) >= 0) else skipped.values.sum())
    return (Evidence("skipped_steps", (int(skipped.steps[0]), int(skipped.steps[-1])), f"{total:.0f}", "a few at the start"),)


def _run(*scale: float, **signals: list[float]) -> Training:
    return Training(signals={"loss_scale": Series.of(scale)} | {name: Series.of(values) for name, values in signals.items()})


FAULT = Fault(
    code="NUM002",
    slug="fp16-overflow",
    title="Half precision overflows, the loss scale collapses",
    detect=detect,
    needs=("loss_scale",),
    fix="Train in bfloat16, or keep the layer that overflows in single precision.",
    explains=("loss-not-finite", "loss-flat"),
    examples=(
        Example("sick", _run(65536, 32768, 8192, 1024, 64, 4, 1), "down to one"),
        Example("sick", _run(65536, 65536, 65536, 65536, 512, 16, 0.5, skipped_steps=[0, 0, 0, 0, 4, 9, 20]), "collapses late"),
        Example("sick", _run(4096, 4096, 4096, 4096, 128, 32, 4, 2), "a thousandth of what it had"),
        Example("healthy", _run(65536, 65536, 65536, 131072, 131072), "a scale that grows"),
        Example("healthy", _run(128, 128, 128, 128), "a fixed scale"),
        Example("look-alike", _run(4294967296, 65536, 4096, 2048, 2048, 2048, 4096, 4096), "finds its scale in the first steps"),
        Example("look-alike", _run(1, 1, 1, 1, 1), "no scaling at all"),
    ),
    treatment=Treatment("full_precision", {}, moves="loss", direction="down", safety="safe"),
)
