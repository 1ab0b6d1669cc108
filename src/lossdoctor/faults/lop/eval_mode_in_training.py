"""Training goes on in evaluation mode.

What you see
------------
Training accuracy comes near 100 % quickly and validation stays worse than it should, as if dropout were not there. How bad it gets depends
on how often the script validates.

Why it happens
--------------
`model.eval()` is called for a validation inside the loop and `model.train()` is not called again; or a loaded model starts in
evaluation mode. Dropout drops nothing and batch norm keeps its old statistics while the weights move on.

How it is told apart
--------------------
The model's mode is read at every forward that leads to a step, that of each dropout and batch-norm layer of a trained part at
some. Frozen parts, which are rightly in evaluation mode, do not count, and a model without such layers has no mode to get wrong.
Batch norm alone in evaluation mode inside a model that is otherwise training is a known choice of fine-tuning. Overfitting shows
the same curves with every layer in training mode.

What to do
----------
Call `model.train()` right before the training steps of each epoch, and again after every validation inside it.

When this is wrong
------------------
A fine-tuning that leaves out dropout on purpose by calling `model.eval()` on the whole.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training

# Fewer steps than this cannot tell a habit of the loop (starting value).
ENOUGH_STEPS = 5
# A few steps after a look in between do little harm (starting value); from a tenth of the steps on it counts.
LEAST_SHARE = 0.1
# The mode is read, not estimated: from the least share on the fault is there, and the share only adds to it.
BASE, SLOPE = 0.85, 0.15
# A part in evaluation mode inside a model in training mode may be meant so: a suspicion.
PART = 0.6


def detect(training: Training) -> Detection | None:
    """Measure the share of steps whose dropout and batch norm were in evaluation mode."""
    rows = [row for row in training.table("modes") if (row.get("sensitive") or 0) > 0]
    if training.steps < ENOUGH_STEPS or not rows or _moves_inputs(training):
        return None
    return _whole_model(training, rows) or _part(training, rows)


def _whole_model(training: Training, rows: list[Row]) -> Detection | None:
    """Look at the model's own flag, known at every step; that it reaches the layers is known from the samples."""
    share, span = _share_of_steps(training)
    unreached = any(row.get("root_training") is False and not row.get("sensitive_in_eval") for row in rows)
    if share < LEAST_SHARE or unreached:
        return None
    kinds = ", ".join(sorted({str(kind) for row in rows for kind in row.get("kinds") or ()})) or "layers"
    seen = f"{share:.0%} of the steps in evaluation mode"
    evidence = Evidence("train_mode", span, seen, "none", f"with {rows[-1]['sensitive']} layers that it changes: {kinds}")
    return Detection(BASE + SLOPE * share, (evidence,), where=training.where("forward"))


def _part(training: Training, rows: list[Row]) -> Detection | None:
    wrong = [row for row in rows if (row.get("sensitive_in_eval") or 0) > 0 and row.get("root_training") is not False and not _chosen(row)]
    if len(wrong) < LEAST_SHARE * len(rows) or not wrong:
        return None
    seen = f"{wrong[-1]['sensitive_in_eval']} of {wrong[-1]['sensitive']} layers in evaluation mode"
    evidence = Evidence("modes", (wrong[0].step, wrong[-1].step), seen, "none", f"{_kinds(wrong[-1])} of a trained part")
    return Detection(PART, (evidence,), where=training.where("forward"))


def _share_of_steps(training: Training) -> tuple[float, tuple[int, int]]:
    flags = training.signals.get("train_mode", Series.of([])).finite()
    off = flags.steps[flags.values == 0]
    return (len(off) / len(flags), (int(off[0]), int(off[-1]))) if len(off) else (0.0, (0, 0))


def _chosen(row: Row) -> bool:
    """Hold a batch norm that is frozen inside a model in training mode for a choice."""
    return all("norm" in str(kind).lower() for kind in row.get("kinds_in_eval") or ())


def _moves_inputs(training: Training) -> bool:
    """Tell whether an input or a prompt is learnt through a model that stays as it is, rightly in evaluation mode."""
    rows = training.rows.get("coverage", [])
    return bool(rows) and all((row.get("held_elsewhere") or 0) == (row.get("held") or 0) > 0 for row in rows)


def _kinds(row: Row) -> str:
    return ", ".join(sorted({str(kind) for kind in row.get("kinds_in_eval") or ()})) or "layers"


def _run(flags: list[float], *modes: tuple[bool, int], kinds: tuple[str, ...] = ("Dropout", "BatchNorm2d")) -> Training:
    rows = [
        Row(5 * i, {"root_training": root, "sensitive": 4, "sensitive_in_eval": off, "kinds_in_eval": list(kinds) if off else []})
        for i, (root, off) in enumerate(modes)
    ]
    signals = {"loss": Series.of([1.0] * len(flags)), "train_mode": Series.of(flags)}
    return Training(signals=signals, rows={"modes": rows})


ON, OFF = (True, 0), (False, 4)
_INPUT = _run([0.0] * 20, OFF, OFF)
_INPUT.rows["coverage"] = [Row(0, {"held": 1, "held_elsewhere": 1})]

FAULT = Fault(
    code="LOP004",
    slug="eval-mode-in-training",
    title="Trains in evaluation mode",
    detect=detect,
    needs=("loss", "modes"),
    fix="Call model.train() before the training steps of each epoch and after each validation within it.",
    explains=("overfitting", "batchnorm-statistics", "too-few-examples"),
    examples=(
        Example("sick", _run([1.0] * 3 + [0.0] * 17, ON, OFF, OFF, OFF), "never back in training mode after the first validation"),
        Example("sick", _run([1.0] * 12 + [0.0] * 28, ON, ON), "the layers were looked at before the first validation only"),
        Example("sick", _run([0.0] * 20, OFF, OFF, OFF, OFF), "a loaded model that starts in evaluation mode"),
        Example("sick", _run(([1.0] * 6 + [0.0] * 4) * 2, ON, OFF, ON, OFF), "validation in the middle of each epoch"),
        Example("healthy", _run([1.0] * 20, ON, ON, ON, ON), "training mode at every step"),
        Example("healthy", _run([1.0] * 20), "no dropout and no batch norm"),
        Example("look-alike", _run([1.0] * 20, (True, 2), (True, 2), kinds=("BatchNorm2d",)), "batch norm frozen in fine-tuning"),
        Example("look-alike", _run([0.0] + [1.0] * 39, OFF, ON, ON, ON, ON, ON, ON, ON), "one look at a batch in evaluation mode"),
        Example("look-alike", Training(rows={"modes": [Row(0, {"root_training": False, "sensitive": 0})]}), "no layer that a mode changes"),
        Example("look-alike", _INPUT, "an input is learnt through a fixed model"),
        Example("known miss", _run([1.0] * 38 + [0.0] * 2, ON, ON, ON, ON), "the last steps of a run only"),
    ),
    plants=(
        Plant("middle", "loop", r"model\.train\(\)", "model.train(epoch == 0)", kinds=("dropout", "batchnorm")),
        Plant("severe", "loop", r"model\.train\(\)", "model.eval()", kinds=("dropout", "batchnorm")),
        Plant("mild", "loop", r"model\.train\(\)", "model.train(epoch % 3 > 0)", kinds=("dropout", "batchnorm")),
    ),
    treatment=Treatment("train_mode", {}, moves="validation", direction="down"),
)
