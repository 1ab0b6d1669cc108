"""Gradients of several micro-batches are added up, and the losses are not divided by their number.

What you see
------------
Training is less steady than with the same large batch at once, or diverges at a rate that was fine before; a clipping limit is
met at nearly every step.

Why it happens
--------------
Each backward adds the gradient of a mean. The sum over k micro-batches is k times the mean over all their rows, so the rate is k
times as large as it reads.

How it is told apart
--------------------
The backward calls of each step are counted, and the value that backward was called on is compared with the value of the loss
call. Divided losses stand at one k-th; undivided ones at one. A loss that is a sum over rows needs no division. Two backward calls
a step are too few to tell micro-batches from two losses.

What to do
----------
Call `(loss / k).backward()`, or divide the rate by k and say so.

When this is wrong
------------------
Where the terms of one loss are sent backwards one by one, their sum is meant. With Adam and no clipping the factor cancels: it is
advice then."""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Level, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training

FEWEST = 3  # backward calls of a step: two may be two losses (a discriminator's real and generated half)
ENOUGH_STEPS = 5
STEADY = 0.9  # share of steps with the usual number: the last group of an epoch may be smaller
ALIKE = 0.02  # rounding of a scaled loss
# Their steps do not depend on the size of the gradient.
SCALE_FREE = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adafactor", "Rprop")


def detect(training: Training) -> Detection | None:
    """Compare the number of backward calls a step with what the losses were divided by."""
    counts = training.series("backwards")
    known = counts.values[np.isfinite(counts.values) & (counts.values > 0)]
    if training.roles or len(known) < ENOUGH_STEPS:
        return None
    usual = float(np.median(known))
    if usual < FEWEST or float((known == usual).mean()) < STEADY:
        return None
    calls = [row for row in training.table("loss_call") if row.get("ratio") is not None and row.get("reduction") == "mean"]
    if not calls or any(abs(float(row["ratio"]) - 1.0) > ALIKE for row in calls):
        return None
    seen = f"{usual:.0f} backward calls a step, each on {float(calls[-1]['ratio']):.2g} times the mean loss"
    note = f"the gradient is {usual:.0f} times that of the whole batch"
    evidence = Evidence("backwards", (int(counts.steps[0]), int(counts.steps[-1])), seen, f"1/{usual:.0f} of the mean loss", note)
    optimizer = str((training.fact("optimizer") or {}).get("name", ""))
    free = optimizer in SCALE_FREE and not training.has("clip_limit")
    return Detection(0.88, (evidence,), severity="advice" if free else None)


def _run(backwards: int, ratio: float, optimizer: str = "SGD", reduction: str = "mean", **signals: Any) -> Training:
    counted = {"loss": Series.of([1.0] * 20), "backwards": Series.of([backwards] * 20), **signals}
    calls = [Row(step, {"kind": "cross_entropy", "ratio": ratio, "reduction": reduction}) for step in (0, 9)]
    return Training(signals=counted, rows={"loss_call": calls}, facts={"optimizer": {"name": optimizer}})


def _plant(level: Level, parts: int, rate: int) -> Plant:
    """Step once in so many batches, on gradients that are added up; with a rate that their mean, which is less noisy, would bear."""
    end = r"^( +)optimizer\.zero_grad\(\)\n +loss\.backward\(\)\n +optimizer\.step\(\)$"
    grouped = rf"\1loss.backward()\n\1batch += 1\n\1if batch % {parts} == 0:\n\1    optimizer.step()\n\1    optimizer.zero_grad()"
    also = (("loop", r"^EPOCHS = ", r"batch = 0\nEPOCHS = "), ("optimiser", r"^RATE = (.*)$", rf"RATE = \1 * {rate}"))
    return Plant(level, "loop", end, grouped, kinds=("regression", "images"), also=also)


FAULT = Fault(
    code="LOP003",
    slug="accumulation-unscaled",
    title="Accumulated losses are not divided by the micro-batches",
    detect=detect,
    needs=("backwards", "loss_call"),
    fix="Divide each micro-batch's loss by their number before backward.",
    severity="warning",
    explains=("lr-too-high", "loss-noisy"),
    examples=(
        Example("sick", _run(4, 1.0), "four micro-batches, plain descent"),
        Example("sick", _run(8, 1.0, "AdamW", clip_limit=Series.of([1.0] * 20)), "eight, clipped"),
        Example("sick", _run(4, 1.0, "Adam"), "four with Adam: advice"),
        Example("healthy", _run(4, 0.25), "divided"),
        Example("healthy", _run(1, 1.0), "one batch a step"),
        Example("look-alike", _run(2, 1.0), "two losses"),
        Example("look-alike", _run(4, 1.0, reduction="sum"), "sums over rows"),
        Example("known miss", _run(2, 1.0, "SGD"), "two micro-batches"),
    ),
    plants=(
        _plant("mild", 4, 1),
        _plant("middle", 8, 8),
        _plant("severe", 32, 8),
    ),
    treatment=Treatment("divide_losses", {}, moves="loss", direction="down"),
)
