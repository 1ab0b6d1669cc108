"""A share of the labels is wrong at random; the score stops where the right ones end.

What you see
------------
Training and validation accuracy stop at the same level, well below what the task should give; the loss flattens far above zero, then
the training loss falls on by memorising while validation gets worse.

Why it happens
--------------
Wrong labels cannot be predicted. With a share of them wrong, the best accuracy is the share of right ones, and the lowest honest loss is
the entropy of that mixture.

How it is told apart
--------------------
Predictions on rows that were not trained on are split by how sure they are. Where classes overlap, mistakes are made in doubt, and the
surest fifth has hardly any. Labels that are wrong at random are missed in the surest fifth as often as elsewhere. Two classifiers can give
the witness: the script's own model on rows struck from a repetition, and trees on the captured rows. Meaningless labels leave no sure
prediction at all; a model too small cannot memorise sixteen examples.

What to do
----------
Look at the examples that are predicted surely and labelled otherwise; relabel them, or use a loss that bears wrong labels.

When this is wrong
------------------
Targets that are random by nature (clicks, next moves) look alike with two classes; only errors among several classes are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.strength import slope
from lossdoctor.derive.unseen import field_series, unseen_passes

# Share of mistakes among the surest fifth of the predictions. Healthy problems have next to none there (starting values).
SURE_USUAL, SURE_WRONG = 0.03, 0.10
# The same over mistakes overall: random labels 1, overlap of classes below a half, also where noise drowns the inputs (starting).
OVERLAP, RANDOM = 0.5, 0.8
BETTER_THAN_CHANCE = 0.85  # mistakes overall, above which predictions are hardly better than guessing
FEWEST_CLASSES = 3
# Validation accuracy whose plateau asks for a look, and best unseen loss over guessing (starting values).
ACCURATE, HOPELESS = 0.95, 0.97
DOUBTFUL = 0.4  # without an experiment


def detect(training: Training) -> Detection | None:
    """Weigh mistakes on unseen rows by how sure the predictions were."""
    if training.roles:
        return None
    plateau = _plateau(training)
    found = list(_witnesses(training))
    if not found:
        return Detection(DOUBTFUL, plateau) if plateau else None
    name, facts = max(found, key=lambda each: _strength(each[1]))
    strength = _strength(facts)
    if strength <= 0:
        return None
    wrong, classes = float(facts["surely_mistaken"]), int(facts["classes"])
    share = min(1.0, wrong * classes / (classes - 1))
    seen = Evidence(
        name,
        (0, training.steps),
        f"{wrong:.0%} wrong among the surest fifth, {float(facts['mistaken']):.0%} overall",
        f"below {SURE_USUAL:.0%}",
        f"predictions for {facts['rows']} rows that were not trained on",
    )
    return Detection(
        strength, (seen, *plateau), f"About {share:.0%} of the labels are wrong: look at examples predicted surely and labelled otherwise."
    )


def _witnesses(training: Training) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in ("unseen", "baseline"):
        noise = training.found(name).get("noise")
        if noise and int(noise["classes"]) >= FEWEST_CLASSES:
            yield name, noise


def _strength(facts: Mapping[str, Any]) -> float:
    overall, sure = float(facts["mistaken"]), float(facts["surely_mistaken"])
    chance = 1 - 1 / int(facts["classes"])
    if overall <= 0 or overall > BETTER_THAN_CHANCE * chance:
        return 0.0
    return slope(sure, SURE_USUAL, SURE_WRONG) * slope(sure / overall, OVERLAP, RANDOM)


def _plateau(training: Training) -> tuple[Evidence, ...]:
    """Return the evidence of a validation accuracy that stops short while the labels mean something."""
    level = expected_level(training)
    passes = unseen_passes(training) if training.has("validation") else []
    correct, losses = (field_series(passes, name).finite() for name in ("correct", "loss"))
    if not len(correct) or float(correct.values.max()) > ACCURATE:
        return ()
    if level is not None and len(losses) and float(losses.values.min()) > HOPELESS * level.guess:
        return ()
    span = (int(correct.steps[0]), int(correct.steps[-1]))
    return (Evidence("validation", span, f"{float(correct.values.max()):.1%} right at best", f"above {ACCURATE:.0%}"),)


def _run(correct: float, mistaken: float | None = None, sure: float = 0.0, classes: int = 10) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    passes = [Row(step, {"rows": 300, "loss": 1.2, "correct": correct, "seen": 0.0}) for step in (10, 20, 30)]
    noise = {"rows": 250, "classes": classes, "mistaken": mistaken, "surely_mistaken": sure}
    done = {"unseen": Experiment("unseen", "done", 1.0, {"noise": noise})} if mistaken is not None else {}
    return Training(signals={"loss": Series.of([2.3, 1.5, 1.2])}, rows={"loss_call": [call], "validation": passes}, experiments=done)


_LOADED = r"^(x_train, y_train, x_test, y_test = load\(SEED\))$"


def _wrong(share: str) -> str:
    """Return the edit that replaces a share of all labels at random."""
    return (
        "\\1\nfor labels in (y_train, y_test):\n"
        f"    rows = torch.rand(len(labels)) < {share}\n"
        "    labels[rows] = labels[torch.randint(0, len(labels), (int(rows.sum()),))]"
    )


FAULT = Fault(
    code="LAB002",
    slug="label-noise",
    title="A share of the labels is wrong",
    detect=detect,
    needs=("loss",),
    fix="Look at the examples that are predicted surely and labelled otherwise; relabel them, or use a loss that bears wrong labels.",
    severity="warning",
    explains=("overfitting", "too-few-examples", "underfitting", "plateau-then-drop", "memorisation-staircase", "too-few-epochs"),
    examples=(
        Example("sick", _run(0.6, 0.4, 0.38), "four of ten labels at random"),
        Example("sick", _run(0.78, 0.2, 0.18), "two of ten labels at random"),
        Example("healthy", _run(0.97, 0.04, 0.001), "learns"),
        Example("healthy", _run(0.9, 0.1, 0.01), "mistakes are made in doubt"),
        Example("look-alike", _run(0.7, 0.3, 0.06), "classes that overlap"),
        Example("look-alike", _run(0.1, 0.9, 0.9), "labels that mean nothing"),
        Example("look-alike", _run(0.75, 0.25, 0.24, classes=2), "two classes, random by nature"),
        Example("known miss", _run(0.93, 0.06, 0.05), "one label in twenty"),
    ),
    plants=(
        Plant("mild", "data", _LOADED, _wrong("0.15"), kinds=("classifier",)),
        Plant("middle", "data", _LOADED, _wrong("0.33"), kinds=("classifier",)),
        Plant("severe", "data", _LOADED, _wrong("0.55"), kinds=("classifier",)),
    ),
    bigger_machine=BiggerMachine("no", "wrong labels are as wrong on any machine"),
    decides_with=("unseen", "baseline"),
)
