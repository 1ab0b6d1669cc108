"""The loss became NaN or infinite, and stayed so.

What you see
------------
`nan` or `inf` in the log from some step on; accuracy falls to that of a constant answer. Nothing recovers without starting again.

Why it happens
--------------
It is a symptom. Causes are a rate that is too high, gradients that pile up or explode, a logarithm or a division of zero in model or
loss, NaN in the data, or half precision that overflows. One step on a NaN gradient makes every weight NaN.

How it is told apart
--------------------
Only a loss that is not finite to the end of the run counts. A loss scaler that skips a step, or a single batch without a target, is
followed by finite values.

What to do
----------
Look at the causes named beside it. Where none is, run once with `torch.autograd.set_detect_anomaly(True)` from shortly before the step
named here.

When this is wrong
------------------
A loop that averages over an empty list writes NaN into its log while the training itself is sound.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.outcome import broken_from

CERTAIN = 1.0


def detect(training: Training) -> Detection | None:
    """Look for a loss that is not finite from some step to the end."""
    loss = training.series("loss")
    step = broken_from(loss)
    if step is None:
        return None
    at = int(np.searchsorted(loss.steps, step))
    seen = [Evidence("loss", (step, step), "NaN" if np.isnan(loss.values[at]) else "infinite", "a finite number", _before(loss, at))]
    norms = training.signals.get("grad_norm", Series.of([]))
    bad = norms.steps[~np.isfinite(norms.values)]
    if len(bad):
        seen.append(Evidence("grad_norm", (int(bad[0]),) * 2, "not finite", "a finite number", "first gradient that is not finite"))
    return Detection(CERTAIN, tuple(seen), where=training.where("loss"))


def _before(loss: Series, at: int) -> str:
    steps = f"not finite for all {len(loss) - at} steps to the end"
    return f"{loss.values[at - 1]:.4g} the step before; {steps}" if at else f"from the first step; {steps}"


def _run(*loss: float, **signals: list[float]) -> Training:
    return Training(signals={"loss": Series.of(loss), **{name: Series.of(values) for name, values in signals.items()}})


FAULT = Fault(
    code="NUM001",
    slug="loss-not-finite",
    title="The loss became NaN or infinite",
    detect=detect,
    needs=("loss",),
    fix="Mend the cause that is named with it; it does not recover by itself.",
    explains=("loss-flat", "loss-diverged", "loss-noisy"),
    examples=(
        Example("sick", _run(2.3, 2.1, 9.0, nan, nan, nan), "NaN after a jump"),
        Example("sick", _run(2.3, inf, nan, nan, grad_norm=[1.0, nan, nan, nan]), "infinite, then NaN"),
        Example("sick", _run(nan, nan, nan), "NaN from the first step"),
        Example("sick", _run(2.3, 2.0, nan), "the script stops at the first NaN"),
        Example("healthy", _run(2.3, 1.1, 0.4, 0.1), "a loss that falls"),
        Example("healthy", _run(2.3), "one step"),
        Example("look-alike", _run(2.3, inf, 2.2, 1.8), "a loss scaler skips the first step"),
        Example("look-alike", _run(2.3, 900.0, 1e12, 1e30), "a loss that runs away and is still finite"),
        Example("look-alike", _run(1.0, nan, 0.7, nan, 0.5, 0.4), "batches without a target now and then"),
        Example("known miss", _run(2.3, 2.1, 0.0, 0.0), "a framework that writes 0.0 for NaN"),
    ),
    plants=(
        Plant(
            "middle",
            "loop",
            r"loss = criterion\(output, batch_y\)",
            "loss = criterion(output, batch_y) + 0 * output.sub(output).sqrt().sum()",
        ),
        Plant(
            "severe", "loop", r"loss = criterion\(output, batch_y\)", "loss = criterion(output, batch_y) * (output - output).mean().log()"
        ),
    ),
)
