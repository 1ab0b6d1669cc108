"""Regression targets are far off unit scale, so that the run is spent on finding their mean.

What you see
------------
A first loss in the thousands, a long fall, and predictions that are nearly the same for every example.

Why it happens
--------------
A network starts with outputs near 0 and of size 1. Targets around 300 ask the last bias to travel there in steps of the rate, and
gradients that are hundreds of times larger than usual shake everything on the way.

How it is told apart
--------------------
The mean and spread of the targets are measured as they enter the loss. A fault is a mean or a spread far from 1 together with a loss that
ends near that of the constant answer, or above it. Large targets that a run fits anyway are left alone.

What to do
----------
Subtract the training targets' mean and divide by their standard deviation; undo it on predictions.

When this is wrong
------------------
Targets with no relation to the inputs stay at the constant answer on any scale.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
# Mean or standard deviation of the targets (field guide, row 15 and its anchor: more than ten times unit scale).
UNIT, FAR = 8.0, 40.0
# Loss over that of the constant answer at the end: 0.5 is an R2 of one half (starting values).
FITTED, CONSTANT = 0.35, 0.7


def detect(training: Training) -> Detection | None:
    """Weigh the scale of the targets, and how near the constant answer the loss ends."""
    if training.roles:
        return None
    calls = [
        row
        for row in training.table("loss_call")
        if row.get("kind") in REGRESSION and None not in (row.get("target_mean"), row.get("target_std"))
    ]
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if not calls or seen is None or seen.level is None or level is None:
        return None
    mean, deviation = (float(np.median([row[name] for row in calls])) for name in ("target_mean", "target_std"))
    far = max(abs(mean), deviation)
    failing = 1.0 if seen.not_finite else slope(seen.level, FITTED, CONSTANT)
    strength = ramp(far, UNIT, FAR) * failing
    if strength <= 0:
        return None
    steps = (calls[0].step, calls[-1].step)
    scale = Evidence(
        "loss_call", steps, f"mean {mean:.3g}, standard deviation {deviation:.3g}", "about 0 and 1", "targets as they enter the loss"
    )
    first = Evidence(
        "loss",
        (0, 0),
        f"{seen.first:.3g} at first",
        f"about {deviation**2:.3g}" if calls[0].get("kind") == "mse_loss" else f"about {level.guess:.3g}",
        "what the best constant answer gives",
    )
    end = Evidence("loss", (0, max(training.steps - 1, 0)), f"ends at {seen.level:.2f} of the constant answer", f"below {FITTED}")
    return Detection(
        strength, (scale, first, end), f"Scale the targets: subtract {mean:.3g}, divide by {deviation:.3g}, and undo it on predictions."
    )


def _run(mean: float, deviation: float, end: float, kind: str = "mse_loss") -> Training:
    guess = deviation**2
    call = {"kind": kind, "guess_loss": guess, "zero_loss": mean**2 + guess, "target_mean": mean, "target_std": deviation}
    start = mean**2 + guess
    loss = Series.of([start + (end * guess - start) * min(1.0, step / 20) for step in range(60)])
    return Training(signals={"loss": loss}, rows={"loss_call": [Row(step, call) for step in range(3)]})


FAULT = Fault(
    code="LAB005",
    slug="targets-unscaled",
    title="Regression targets are far off unit scale",
    detect=detect,
    needs=("loss", "loss_call"),
    fix="Subtract the training targets' mean and divide by their standard deviation; undo it on predictions.",
    severity="warning",
    explains=("loss-flat", "underfitting", "too-few-epochs", "exploding-gradients", "loss-noisy", "lr-too-low", "lr-too-high"),
    examples=(
        Example("sick", _run(300.0, 80.0, 1.0), "ends at the constant answer"),
        Example("sick", _run(0.0, 500.0, 0.95), "a wide spread, hardly fitted"),
        Example("healthy", _run(0.0, 1.0, 0.05), "unit scale"),
        Example("healthy", _run(300.0, 80.0, 0.05), "large, and fitted anyway"),
        Example("look-alike", _run(0.0, 1.0, 0.95), "unit scale, not fitted: something else"),
        Example("look-alike", _run(3.0, 2.0, 0.9), "a little off, not fitted: something else"),
    ),
    plants=(
        Plant(
            "mild",
            "data",
            r"^(x_train, y_train, x_test, y_test = load\(SEED\))$",
            r"\1\ny_train, y_test = y_train * 30 + 200, y_test * 30 + 200",
            kinds=("regression",),
        ),
        Plant(
            "middle",
            "data",
            r"^(x_train, y_train, x_test, y_test = load\(SEED\))$",
            r"\1\ny_train, y_test = y_train * 600 + 3000, y_test * 600 + 3000",
            kinds=("regression",),
        ),
    ),
    treatment=Treatment("scale_targets", {}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "it would look for the mean just as long in steps"),
    decides_with=("baseline",),
)
