"""The validation loss lies below the training loss.

What you see
------------
All through the run the held-out loss is lower than that of the training data.

Why it happens
--------------
Usually dropout and augmentation, which act on the training data alone. Else: validation data that were trained on, an easier
validation set, or a loss with a penalty that validation leaves out.

How it is told apart
--------------------
A mean over an epoch lags half an epoch behind the validation at its end; so each pass is compared with the training loss around it,
later values included. Losses of another scale (sums, other terms) are not compared. Which of the causes it is a curve cannot tell;
`lossdoctor run` scores training rows in the mode of validation, and looks for common rows.

What to do
----------
Compare like with like: the training data scored in evaluation mode without augmentation. If the gap stays, look for the same rows in
both sets.

When this is wrong
------------------
It is often no fault at all, which is why it is advice.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.around import around
from lossdoctor.derive.curves import objective
from lossdoctor.derive.unseen import field_series

LEAST_PASSES = 4
# Starting values: augmentation of images gave 0.86; means over epochs that lag 0.96 to 1.0; below a third another scale.
BELOW, EACH, OTHER_SCALE = 0.93, 0.97, 0.33
MOST = 0.8  # of the passes of the later half


def detect(training: Training) -> Detection | None:
    """Compare each validation loss with the training loss around it."""
    loss = training.series("loss").finite()
    passes = field_series(training.table("validation"), "loss").finite()
    if len(passes) < LEAST_PASSES or objective(training) != "plain" or training.fact("log_curve", "loss") != "loss":
        return None
    ratios = passes.values / around(loss, passes.steps)
    later = ratios[len(ratios) // 2 :]
    later = later[np.isfinite(later)]
    middle = float(np.median(later)) if len(later) else 1.0
    if not OTHER_SCALE < middle < BELOW or float((later < EACH).mean()) < MOST:
        return None
    span = (int(passes.steps[len(passes) // 2]), int(passes.steps[-1]))
    seen = Evidence(
        "validation", span, f"{middle:.2f} of the training loss", "about 1 or more", f"in {len(later)} passes of the later half"
    )
    return Detection(min(0.95, 0.8 + (BELOW - middle)), (seen,))


def _run(train: list[float], held_out: list[float], every: int = 1, **facts: object) -> Training:
    rows = [Row((i + 1) * every - 1, {"loss": value}) for i, value in enumerate(held_out)]
    return Training(signals={"loss": Series.of(train)}, rows={"validation": rows}, facts=dict(facts))


_TRAIN = [5.4, 4.7, 4.4, 4.2, 4.0, 3.9, 3.8, 3.7, 3.65, 3.6]

FAULT = Fault(
    code="CUR004",
    slug="val-better-than-train",
    title="Validation better than training",
    detect=detect,
    needs=("loss", "validation"),
    fix="Score the training data in evaluation mode without augmentation; if the gap stays, look for common rows.",
    severity="advice",
    examples=(
        Example("sick", _run(_TRAIN, [0.85 * value for value in _TRAIN]), "augmentation on the training data"),
        Example("sick", _run(_TRAIN, [0.5 * value for value in _TRAIN]), "half of the training loss"),
        Example("healthy", _run(_TRAIN, [1.05 * value for value in _TRAIN]), "validation a little above"),
        Example("healthy", _run(_TRAIN, _TRAIN), "both alike"),
        Example("look-alike", _run(_TRAIN, [*_TRAIN[1:], 3.58]), "a mean over the epoch that lags"),
        Example("look-alike", _run(_TRAIN, [0.01 * value for value in _TRAIN]), "another scale"),
        Example("look-alike", _run(_TRAIN, [0.85 * v for v in _TRAIN], log_words=["loss", "gan"]), "a generative pair"),
        Example("known miss", _run(_TRAIN, [0.95 * value for value in _TRAIN]), "five per cent below"),
    ),
)
