"""Validation runs in training mode.

What you see
------------
The validation score is lower than it should be and differs from one look to the next with the same weights. Batch size and order of
the validation data change it.

Why it happens
--------------
`model.eval()` is not called before validation; or a dropout is built inside `forward`, or called as a function without the model's
`training` flag, and no mode reaches it. Dropout then strikes out activations while the score is taken, and batch norm uses the
statistics of the validation batch and lets them into its running ones.

How it is told apart
--------------------
In a pass over rows that were not trained on, with gradients off, it is looked at whether dropout was really drawn or batch statistics
were really used. Repeating the same rows within a pass is a way to measure uncertainty (Monte Carlo dropout); a pass in training mode
over rows that were trained on renews batch norm's statistics or logs training figures: neither counts, nor does a pass within each
step, which makes targets (a teacher, pseudo-labels) or acts. A model without such layers may stay in training mode for ever.

What to do
----------
Call `model.eval()` before validation and `model.train()` after it. Build dropout as a layer of the model, or pass
`training=self.training` to `functional.dropout`.

When this is wrong
------------------
A generator that is meant to be sampled with its dropout on, a batch norm that is meant to adapt to the validation data, and
pseudo-labels that are made anew for the same few rows at every step. One validation pass of many in training mode is not told.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Training

# From half of the passes on it is the way of the script, not an exception within it (starting value).
LEAST_SHARE = 0.5
# More than half of the rows trained on: a pass over training data. As many forwarded twice: uncertainty by repetition (starting values).
SEEN, REPEATED = 0.5, 0.5
# Share of a pass's rows that come again in the next: all, but for what the record could not hold (starting value).
SAME = 0.9
# More than one pass in two steps belongs to the steps; told from the first passes, later ones are recorded ever more rarely.
DENSE, FIRST_PASSES = 0.5, 200
# What was drawn is seen, not estimated; the share of passes only adds to it. A pass that nothing was scored in may be sampling, one
# with gradients may be part of training: suspicions.
BASE, SLOPE, UNSURE = 0.85, 0.15, 0.6
_SCORES = ("loss", "correct", "r2")


def detect(training: Training) -> Detection | None:
    """Measure the share of validation passes in which dropout was drawn or batch statistics were used."""
    rows = training.table("validation")
    return _drawn(training, [row for row in rows if _validates(row)]) or _with_gradients(training, rows)


def _drawn(training: Training, passes: list[Row]) -> Detection | None:
    wrong = [row for row in passes if row.get("random") is True]
    if not wrong or len(wrong) < LEAST_SHARE * len(passes):
        return None
    scored, same = any(map(_scored, wrong)), _same_rows(wrong)
    if (training.roles and not scored) or (_part_of_steps(wrong) and not (scored and same)):
        return None  # samples drawn from one side of a generative pair; targets of a teacher
    evidence = Evidence("validation", (wrong[0].step, wrong[-1].step), f"{len(wrong)} of {len(passes)} passes", "0", _note(wrong[-1]))
    return Detection(BASE + SLOPE * len(wrong) / len(passes) if scored or same else UNSURE, (evidence,), fix=_fix(wrong[-1]))


def _part_of_steps(passes: list[Row]) -> bool:
    """Tell whether most steps hold a pass: a teacher's targets, pseudo-labels, actions."""
    few = passes[:FIRST_PASSES]
    return len(few) > 2 and len(few) > DENSE * (few[-1].step - few[0].step + 1)


def _with_gradients(training: Training, rows: list[Row]) -> Detection | None:
    """Look for forwards in training mode that lead to no backward: a validation without no_grad, or a target that is not learnt from."""
    wrong = [row for row in rows if row.get("grad_enabled") is True and row.get("root_training") is True]
    modes = training.rows.get("modes", [])
    sensitive = max((row.get("sensitive_in_train") or 0 for row in modes), default=0)
    if not wrong or not sensitive or training.roles or len(wrong) < LEAST_SHARE * len(rows):
        return None
    note = f"in training mode and with gradients, no backward follows; {sensitive} layers act otherwise in training"
    evidence = Evidence("validation", (wrong[0].step, wrong[-1].step), f"{len(wrong)} of {len(rows)} passes", "0", note)
    return Detection(UNSURE, (evidence,), fix="Validate after model.eval() and under torch.no_grad(), then call model.train().")


def _validates(row: Row) -> bool:
    return row.get("grad_enabled") is False and (row.get("seen") or 0.0) < SEEN and (row.get("repeated") or 0.0) < REPEATED


def _scored(row: Row) -> bool:
    return any(row.get(name) is not None for name in _SCORES) or (row.get("paired_rows") or 0) > 0


def _same_rows(passes: list[Row]) -> bool:
    """Tell whether every pass goes over the rows of the one before, as validation does and sampling does not."""
    rows = [frozenset(row.get("hashes") or ()) for row in passes]
    return len(rows) > 1 and all(one and len(one & two) >= SAME * len(one) for one, two in pairwise(rows))


def _note(row: Row) -> str:
    layers = row.get("sensitive_in_train") or 0
    where = (
        f"{layers} of {row.get('sensitive')} layers in training mode" if layers else "every layer in evaluation mode: outside their reach"
    )
    return f"dropout was drawn or batch statistics were used; {where}"


def _fix(row: Row) -> str:
    if row.get("sensitive_in_train"):
        return "Call model.eval() before validation and model.train() after it."
    return "Build dropout as a layer of the model, or pass training=self.training to functional.dropout: model.eval() does not reach it."


def _run(*passes: dict[str, Any]) -> Training:
    common = {"grad_enabled": False, "sensitive": 2, "sensitive_in_train": 0, "random": False, "repeated": 0.0, "seen": 0.0, "correct": 0.9}
    return Training(rows={"validation": [Row(20 * (i + 1), {**common, **fields}) for i, fields in enumerate(passes)]})


def _pair() -> Training:
    side = _run(*[{**_TRAIN, "correct": None, "hashes": ["a", "b"]}] * 3)
    side.roles = [Training(), Training()]
    return side


def _teacher() -> Training:
    passes = _run(*[{**_TRAIN, "hashes": [f"{i}"]} for i in range(12)])
    passes.rows["validation"] = [Row(i, row.fields) for i, row in enumerate(passes.rows["validation"])]
    return passes


_TRAIN: dict[str, Any] = {"sensitive_in_train": 2, "random": True}

FAULT = Fault(
    code="LOP005",
    slug="train-mode-in-eval",
    title="Validates in training mode",
    detect=detect,
    needs=("validation",),
    fix="Call model.eval() before validation and model.train() after it.",
    explains=("val-better-than-train", "batchnorm-statistics", "split-shift"),
    examples=(
        Example("sick", _run(_TRAIN, _TRAIN, _TRAIN), "never in evaluation mode"),
        Example("sick", _run({"random": True}, {"random": True}), "a dropout that no mode reaches"),
        Example("sick", _run({"random": True}, {"random": True}, {"random": True, "repeated": 0.75}), "the same, tested again at the end"),
        Example("sick", _run(*[{**_TRAIN, "correct": None, "hashes": ["a", "b"]}] * 3), "scored outside torch, on the same rows each time"),
        Example("healthy", _run({}, {}, {}), "evaluation mode in every pass"),
        Example("healthy", _run({"sensitive": 0, "sensitive_in_train": 0}), "no layer that a mode changes"),
        Example("look-alike", _run({}, {}, {**_TRAIN, "repeated": 0.95}), "Monte Carlo dropout after training"),
        Example("look-alike", _run({**_TRAIN, "seen": 1.0}, {}), "batch norm's statistics renewed on training rows"),
        Example("look-alike", _run({**_TRAIN, "grad_enabled": True}, {}), "a forward with gradients, not a validation"),
        Example("look-alike", _run({**_TRAIN, "correct": None}), "samples drawn from a generator, nothing scored"),
        Example("look-alike", _teacher(), "a teacher in training mode makes the targets of each step"),
        Example("look-alike", _pair(), "one side of a generative pair, sampled from the same noise"),
        Example("known miss", _run(_TRAIN, {}, {}), "one validation of three in training mode"),
    ),
    plants=(
        Plant("middle", "validation", r"model\.eval\(\)", "model.train()", kinds=("dropout", "batchnorm")),
        Plant("mild", "validation", r"model\.eval\(\)", "model.train(epoch % 4 > 0)", kinds=("dropout", "batchnorm")),
    ),
    treatment=Treatment("evaluation_mode", {}, moves="validation", direction="down", safety="safe"),
)
