"""Validation inputs are prepared in another way than training inputs.

What you see
------------
Training goes well; the validation loss is high from the start, falls little or jumps about. Or the score of one and the same model
differs from pass to pass.

Why it happens
--------------
One of the two goes without normalisation, is scaled by other figures, or has its channels in another order; or both come from one
data set object whose transform augments at random.

How it is told apart
--------------------
Mean and spread of each feature are compared between training batches and validation passes. Data of another kind differ by some
tens of per cent; forgotten normalisation changes the spread by a factor, or the mean by more than the spread. That a classifier's
validation inputs are augmented shows when the first rows of two passes differ everywhere, and are nearer to one another at the
same place than elsewhere.

What to do
----------
Give training and validation a transform each, with the same normalisation and without the random part for validation.

When this is wrong
------------------
A validation set that is meant to come from another domain has another spread; a loss as low there as in training clears it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.strength import slope

FEWEST = 30  # rows on either side
LEAST = 12  # values of a feature in a batch: the spread of so many is .94 of that of all, of two .56 (normal values)
# Ratio of the spreads, or difference of the means in spreads: 1.0 to 1.2 and 0 to .3 on healthy runs, 9.9 for images in [0, 1] beside
# standardised ones (measured on eleven scripts).
LITTLE, MUCH = 1.4, 2.0
SHIFTED, FAR = 0.6, 1.0
# Validation loss over training loss, and over the first loss, below which the difference does no harm (starting values).
AS_GOOD, LEARNT = 1.3, 0.7
NEARER = 0.56  # chance is .5; .61 for random crops and turns of 10 x 10 images
CLASSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def detect(training: Training) -> Detection | None:
    """Compare the inputs of validation with those of training, and those of one pass with the next."""
    passes = [row for row in training.table("validation") if row.get("input")]
    return _scaled(training, passes) or _random(training, passes)


def _scaled(training: Training, passes: Sequence[Row]) -> Detection | None:
    given = [row["inputs"][0] for row in training.rows.get("batch", []) if row.get("inputs") and _enough(row["inputs"][0])]
    held = [row["input"][0] for row in passes if (row.get("rows") or 0) >= FEWEST]
    if not given or not held or not _comparable(given[0], held[0]):
        return None
    ratio, shift = _differ(given, held)
    strength = 0.95 * max(slope(max(ratio, 1 / ratio), LITTLE, MUCH), slope(shift, SHIFTED, FAR))
    if strength <= 0 or _as_good(training, passes):
        return None
    figures = [(median(float(each["mean"]) for each in part), median(float(each["std"]) for each in part)) for part in (held, given)]
    words = [f"mean {mean:.3g}, spread {spread:.3g}" for mean, spread in figures]
    evidence = Evidence("validation", (passes[0].step, passes[-1].step), words[0], words[1], "validation inputs beside training inputs")
    return Detection(strength, (evidence,))


def _enough(inputs: Any) -> bool:
    """Tell whether a batch holds enough values of each feature: the spread of two rows is far below that of all."""
    shape = [int(size) for size in inputs.get("shape") or ()]
    features = inputs.get("features") or (shape[1] if len(shape) > 1 else 1)
    return math.prod(shape) >= LEAST * features


def _comparable(one: Any, other: Any) -> bool:
    shapes = [list(each.get("shape") or ()) for each in (one, other)]
    floating = not one.get("integer") and not other.get("integer")
    return floating and len(shapes[0]) == len(shapes[1]) > 1 and shapes[0][1] == shapes[1][1]


def _differ(given: Sequence[Any], held: Sequence[Any]) -> tuple[float, float]:
    """Return ratio of the spreads and shift of the means in spreads, as medians over features."""
    spreads, means = (
        [_figures(part, "feature_stds", "std") for part in (given, held)],
        [_figures(part, "feature_means", "mean") for part in (given, held)],
    )
    pairs = list(zip(spreads[0], spreads[1], means[0], means[1], strict=False))
    ratios = [b / a for a, b, _, _ in pairs if a > 0 and b > 0 and math.isfinite(a) and math.isfinite(b)]
    shifts = [abs(d - c) / max(a, b) for a, b, c, d in pairs if max(a, b) > 0 and math.isfinite(c) and math.isfinite(d)]
    return (median(ratios) if ratios else 1.0), (median(shifts) if shifts else 0.0)


def _figures(part: Sequence[Any], each: str, whole: str) -> list[float]:
    rows = [row.get(each) or [row.get(whole)] for row in part]
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=False)]
    return [float(median(column)) if column else math.nan for column in columns]


def _as_good(training: Training, passes: Sequence[Row]) -> bool:
    losses = [float(row["loss"]) for row in passes if row.get("loss") is not None]
    trained = training.signals.get("loss", Series.of([])).finite()
    if not losses or not len(trained):
        return False
    end = float(median(trained.values[-max(1, len(trained) // 10) :].tolist()))
    return losses[-1] <= AS_GOOD * end and losses[-1] < LEARNT * trained.first


def _random(training: Training, passes: Sequence[Row]) -> Detection | None:
    facts = training.found("held_out")
    again, nearer = facts.get("again"), facts.get("nearer")
    if again is None or nearer is None or float(again) != 0.0 or not float(nearer) > NEARER:
        return None
    if not any(row.get("loss_kind") in CLASSES or row.get("correct") is not None for row in passes):
        return None
    seen = f"0% of {facts['rows']} rows are the same at the next pass, and {float(nearer):.0%} are nearest to the row at their place"
    evidence = Evidence("held_out", (passes[0].step, passes[-1].step), seen, "the same rows", "the same data, changed at random")
    fix = "Give validation a data set of its own, without the random part of the transform."
    return Detection(0.88, (evidence,), fix=fix, severity="warning")


def _run(
    mean: float = 0.0, std: float = 1.0, loss: float | None = 2.1, held: dict[str, Any] | None = None, kind: str = "cross_entropy"
) -> Training:
    shape = [64, 1, 8, 8]
    batch = {"inputs": [{"shape": shape, "mean": 0.0, "std": 1.0, "integer": False, "feature_means": [0.0], "feature_stds": [1.0]}]}
    inputs = [{"shape": shape, "mean": mean, "std": std, "integer": False, "feature_means": [mean], "feature_stds": [std]}]
    row = {"rows": 500, "loss": loss, "loss_kind": kind, "input": inputs, "correct": None}
    done = {"held_out": Experiment("held_out", "done", 1.0, {"rows": 397, **held})} if held else {}
    return Training(
        signals={"loss": Series.of([2.3] * 10 + [0.4] * 30)},
        rows={"batch": [Row(0, batch), Row(9, batch)], "validation": [Row(20, row), Row(40, row)]},
        experiments=done,
    )


_CHANGED: dict[str, Any] = {"again": 0.0, "nearer": 0.62}

FAULT = Fault(
    code="PIP005",
    slug="preprocessing-mismatch",
    title="Validation is prepared differently from training",
    detect=detect,
    needs=("validation",),
    fix="Use the same normalisation for training and validation, with the figures of the training data.",
    explains=("overfitting", "val-better-than-train", "too-few-examples"),
    examples=(
        Example("sick", _run(std=0.1), "validation images are not normalised"),
        Example("sick", _run(mean=3.0), "another mean is taken off"),
        Example("sick", _run(held=_CHANGED), "validation images are turned at random"),
        Example("healthy", _run(), "alike"),
        Example("healthy", _run(mean=0.1, std=0.9), "other rows"),
        Example("look-alike", _run(std=0.3, loss=0.45), "another spread, and as good on it"),
        Example("look-alike", _run(held={"again": 0.0, "nearer": 0.5}), "other rows at every pass"),
        Example("look-alike", _run(held=_CHANGED, kind="mse_loss"), "noise that a denoiser takes off"),
        Example("known miss", _run(std=0.8), "normalised by the figures of another data set"),
    ),
    plants=(Plant("middle", "data", r"^x_train, x_test = (.*), \(x_test - mean\) / std$", r"x_train = \1", kinds=("scaled",)),),
    treatment=Treatment("prepare_as_training", {}, moves="validation", direction="down"),
    decides_with=("held_out",),
)
