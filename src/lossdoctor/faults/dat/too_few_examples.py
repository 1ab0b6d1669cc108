"""There are too few different training rows: the model knows them by heart long before it knows the task.

What you see
------------
A training loss of nothing after a few dozen passes over the same rows, and a poor score on unseen rows from early on. Stopping earlier
does not help: at its best the unseen loss is far above the training loss too.

Why it happens
--------------
With a handful of rows for each answer many functions fit all of them, and nothing tells the right one from the others.

How it is told apart
--------------------
Different rows are counted by their hashes, those that come again telling how many there are. They must be few for each answer that is to be
told apart, seen many times, and the gap between unseen and training loss must be wide already at the best step: that is what more
training or an earlier stop cannot close. With many rows the same gap is overfitting alone.

What to do
----------
Train on all the rows at hand (is there a limit, a filter, a debugging subset left in the script?), collect or augment more, or start
from a pretrained model.

When this is wrong
------------------
Random augmentation makes every row new, so they cannot be counted. Training rows from another source than the validated ones show the
same gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Level, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.dead import dead_start
from lossdoctor.derive.distinct import distinct_rows
from lossdoctor.derive.generalisation import Generalisation, generalisation
from lossdoctor.derive.learnable import learnable
from lossdoctor.derive.level import guessed_classes
from lossdoctor.derive.strength import ramp, slope

# Different targets for each answer that is to be told apart. Starting values: 40 digits are 4 each, 1,400 are 140.
ENOUGH, FEW = 150.0, 30.0
LEVELS = 10  # answers that a regression tells apart, for the same count (starting value)
# Gap between unseen and training loss at the best step, as a share of what guessing gives. Starting values: healthy runs up to .11,
# a run that only went on too long .13 to .19.
GAP_SMALL, GAP_WIDE = 0.12, 0.25
ERRORS_FEW, ERRORS_MANY = 0.07, 0.16  # the same of the share of wrong answers
# Where the data set holds as many rows again that are used nowhere, half of such a gap is worth them (starting value).
SPARED = 0.5
FLAT = (
    0.03  # an unseen loss that rose by no more of guessing since its best is as good at the end, and so is the gap there (starting value)
)
SOME_TIMES, MANY_TIMES = 3.0, 10.0  # how often each row was seen
BESIDE, LEFT_BEHIND = 0.8, 0.55  # the training level over the unseen one at the end
NEVER = 0.97  # an unseen loss that was never better than this may have other labels, whatever the number of rows
DOUBTFUL = 0.6  # highest strength then; in the range of suspicion


@dataclass(frozen=True)
class _Rows:
    """Hold the number of different rows, how often each was seen, and how many targets there are for each answer."""

    count: float
    times: float
    each: float

    @property
    def few(self) -> float:
        """How clearly they are few and came often, in [0, 1]."""
        return ramp(self.each, ENOUGH, FEW) * ramp(self.times, SOME_TIMES, MANY_TIMES)


def detect(training: Training) -> Detection | None:
    """Weigh how few the rows are, how often they came, and the gap that no earlier stop would close."""
    found, rows = generalisation(training), _rows(training)
    if rows is None or training.roles:
        return None
    hidden = _behind_another(training, rows)
    if hidden is not None or found is None:
        return hidden
    bounds = (ERRORS_FEW, ERRORS_MANY) if found.measure == "error" else (GAP_SMALL, GAP_WIDE)
    wide = slope(_gap(training, found), *(_ease(training) * bound for bound in bounds))
    strength = rows.few * wide * slope(found.left_behind, BESIDE, LEFT_BEHIND)
    if found.by_guess and found.carried > NEVER and not learnable(training):
        strength = min(strength, DOUBTFUL)
    return Detection(strength, _evidence(training, found, rows), where=training.where("loader"))


def _behind_another(training: Training, rows: _Rows) -> Detection | None:
    """Weigh the gap of a repetition from fresh weights, where the run's own start is dead and so shows no gap."""
    facts = training.found("unseen")
    if "unseen" not in training.experiments and dead_start(training):
        return Detection(DOUBTFUL * rows.few, (_counted(training, rows),)) if rows.few > 0 else None
    if not facts.get("fresh") or not facts.get("guess"):
        return None
    trained, unseen = (float(facts[name]) / float(facts["guess"]) for name in ("trained_last", "unseen_best"))
    ease = _ease(training)
    strength = (
        rows.few * slope(unseen - trained, ease * GAP_SMALL, ease * GAP_WIDE) * slope(trained / max(unseen, 1e-9), BESIDE, LEFT_BEHIND)
    )
    if strength <= 0:
        return None
    if unseen > NEVER and not learnable(training):
        strength = min(strength, DOUBTFUL)
    gap = f"{unseen:.0%} of guessing on {facts['unseen_rows']} rows left out, training at {trained:.0%}"
    again = Evidence(
        "unseen",
        (0, int(facts["steps"])),
        gap,
        f"a gap below {ease * GAP_SMALL:.0%}",
        "a repetition from fresh weights, since the own start is dead",
    )
    return Detection(strength, (_counted(training, rows), again))


def _gap(training: Training, found: Generalisation) -> float:
    """Return the gap at the best unseen loss; with rows to spare, that at the end where the loss is about as good there."""
    rests = _ease(training) < 1 and found.risen <= FLAT
    return found.best - found.trained_last if rests else found.gap_at_best


def _spare(training: Training) -> int:
    """Return how many rows the data set holds that neither training nor validation uses, where training's are a part of it."""
    loader = training.fact("loader") or {}
    held = max((int(row.get("rows") or 0) for row in training.rows.get("validation", [])), default=0)
    return max(0, int(loader.get("of") or 0) - int(loader.get("rows") or 0) - held)


def _ease(training: Training) -> float:
    """Return the share of the usual gaps that is enough."""
    rows = (training.fact("loader") or {}).get("rows")
    return SPARED if rows and _spare(training) >= int(rows) else 1.0


def _counted(training: Training, rows: _Rows) -> Evidence:
    hashed = training.table("row_hashes")
    seen = f"about {rows.count:.0f} different rows, each seen {rows.times:.0f} times"
    each = f"about {rows.each:.2g} for each answer that is to be told apart"
    if spare := _spare(training):
        each += f"; {spare} more rows of the data set are used nowhere"
    span = (hashed[0].step, max(hashed[0].step, hashed[-1].step))
    return Evidence("row_hashes", span, seen, f"more than {ENOUGH:.0f} for each answer", each)


def _rows(training: Training) -> _Rows | None:
    """Count the rows; None where they never came again, so that nobody knows how many there are."""
    found = distinct_rows(row.get("hashes") or () for row in training.table("row_hashes"))
    whole = (training.fact("loader") or {}).get("rows")
    count = found.estimate if found.estimate is not None else float(whole) if whole else None
    if not count:
        return None
    sizes = training.signals.get("batch_rows", Series.of([])).finite()
    batch = float(sizes.values.mean()) if len(sizes) else found.drawn / max(1, len(training.table("row_hashes")))
    targets, answers = _answers(training)
    return _Rows(count, training.steps * batch / count, count * targets / answers)


def _answers(training: Training) -> tuple[float, float]:
    """Return targets per row, and how many answers are to be told apart."""
    calls, tried = training.rows.get("loss_call", []), guessed_classes(training)
    if not calls:
        return 1.0, float(tried[0]) if tried else LEVELS
    shape, given = calls[0].get("target_shape"), calls[0].get("input_shape")
    classes = calls[0].get("classes")
    sizes = training.signals.get("batch_rows", Series.of([])).finite()
    if not classes or classes < 2:
        return 1.0, LEVELS
    if not shape or not given or not len(sizes) or sizes.first <= 0:
        return 1.0, float(classes)
    return max(1.0, prod(shape) / sizes.first), float(classes)


def _evidence(training: Training, found: Generalisation, rows: _Rows) -> tuple[Evidence, ...]:
    gap = _gap(training, found)
    best, end = found.course.best_step, int(found.unseen.steps[-1])
    what = "" if found.measure == "loss" else "share of wrong answers "
    unseen = f"{what}{found.course.best:.4g} at its best, {found.best:.0%} of knowing nothing; training then at {found.best - gap:.0%}"
    note = f"the gap is {gap:.0%}: stopping earlier would not close it"
    return (
        _counted(training, rows),
        Evidence("validation", (min(best, end), end), unseen, f"a gap below {_ease(training) * GAP_SMALL:.0%}", note),
    )


def _run(rows: int, unseen: Sequence[float], trained: float = 0.002, classes: int = 10, **more: Any) -> Training:
    """Build a training of 20 rows a batch over so many different rows, a part `of` more or not; one pass per 100 steps."""
    last = 100 * len(unseen)
    starts = [(20 * batch) % rows for batch in range(0, last, 5)]
    fresh = more.get("fresh", False)
    hashes = [[f"{at}.{(start + i) % rows}" if fresh else f"{(start + i) % rows}" for i in range(20)] for at, start in enumerate(starts)]
    guess = log(classes)
    call = {"kind": "cross_entropy", "guess_loss": guess, "zero_loss": guess, "classes": classes}
    return Training(
        signals={
            "loss": Series.of(np.maximum(trained, guess * 0.98 ** np.arange(last)).tolist()),
            "batch_rows": Series.of([20.0] * last),
        },
        rows={
            "row_hashes": [Row(5 * at, {"hashes": each}) for at, each in enumerate(hashes)],
            "loss_call": [Row(0, call)],
            "validation": [Row(100 * (i + 1), {"rows": 400, "seen": 0.0, "loss": loss}) for i, loss in enumerate(unseen)],
        },
        facts={"loader": {"rows": rows, "of": more["of"]}} if "of" in more else {},
    )


_POOR = [1.1, 0.95, 0.9, 0.88, 0.9, 0.92, 0.94, 0.95]
_GOOD = [0.6, 0.3, 0.2, 0.15, 0.12, 0.11, 0.11, 0.11]
_FLAT = [0.38, 0.37, 0.37, 0.38, 0.38, 0.39, 0.39, 0.4]
_RISES = [0.9, 0.5, 0.4, 0.42, 0.5, 0.7, 0.9, 1.0]


def _starved(kinds: tuple[str, ...], epochs: int, *rows: int) -> Iterator[Plant]:
    """Build the plants of a kind of recipe: most of the training rows are left out, and the rest are passed over for longer."""
    levels: tuple[Level, ...] = ("mild", "middle", "severe")
    for level, count in zip(levels, rows, strict=True):
        cut = rf"\1\nx_train, y_train = x_train[:{count}], y_train[:{count}]"
        longer = ("loop", r"^EPOCHS = \d+$", f"EPOCHS = {epochs}")
        yield Plant(level, "data", r"^(x_train, y_train, x_test, y_test = load\(SEED\))$", cut, kinds, (longer,))


FAULT = Fault(
    code="DAT004",
    slug="too-few-examples",
    title="Too few training examples",
    detect=detect,
    needs=("loss", "validation", "row_hashes"),
    fix="Train on all rows at hand, collect or augment more, or start from a pretrained model.",
    severity="warning",
    explains=("overfitting", "memorisation-staircase"),
    examples=(
        Example("sick", _run(40, _POOR), "forty digits"),
        Example("sick", _run(60, [0.6, 0.5, 0.48, 0.5, 0.52, 0.55, 0.56, 0.58], classes=3), "twenty rows of each of three classes"),
        Example("sick", _run(60, _FLAT, of=1800), "a small gap, and most rows of the data set are used nowhere"),
        Example("healthy", _run(1400, _GOOD), "enough rows, and learnt"),
        Example("look-alike", _run(60, _FLAT), "a small gap, and no more rows at hand"),
        Example("look-alike", _run(60, _FLAT, of=460), "the other rows are validated on"),
        Example("healthy", _run(60, _GOOD), "few rows of an easy task"),
        Example("look-alike", _run(3000, _POOR), "many rows: overfitting alone"),
        Example("look-alike", _run(400, _RISES, trained=0.02), "an earlier stop would have saved most"),
        Example("look-alike", _run(40, [2.4, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.1]), "never better than guessing: the labels"),
        Example("look-alike", _run(40, _POOR, trained=0.9), "the training rows are not fitted either"),
        Example("known miss", _run(40, _POOR, fresh=True), "augmentation makes every row new"),
    ),
    # So many rows, passed over often enough to be learnt by heart; a step of the language model takes long, so it makes fewer.
    plants=(
        *_starved(("language-model",), 60, 120, 60, 25),
        *_starved(("manual",), 600, 32, 16, 6),  # in two dimensions forty rows are nearly enough
        *_starved(("classifier", "regression"), 300, 100, 40, 20),
    ),
    treatment=Treatment("more_rows", {}, moves="validation", direction="down"),
    bigger_machine=BiggerMachine("no", "more data or a pretrained start is what helps"),
    decides_with=("baseline", "unseen"),
)
