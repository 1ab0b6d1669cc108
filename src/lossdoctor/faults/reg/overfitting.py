"""The model goes on fitting the training rows after that has stopped helping on rows it has not seen.

What you see
------------
The training loss falls to almost nothing; the loss on unseen rows falls, reaches its best, and then stays far above or rises again, and
the score with it.

Why it happens
--------------
Past a point the only thing left to learn in the training rows is their noise. More capacity, more epochs and fewer rows all bring that
point nearer; regularisation and augmentation put it off.

How it is told apart
--------------------
Only passes over rows that were never trained on count, against the training loss in the same mode where the script measures it. The
gap must open in the course of the run: where the unseen loss never got below guessing, or the validation inputs differ from the training
inputs, or validation runs with dropout on, something else makes the gap. The rise must exceed what one pass differs from the next. A loss
that rises while the score stays is confidence, not error: advice only.

What to do
----------
Stop at the best step and keep those weights; then regularise (weight decay, dropout, augmentation), use a smaller model or get more data.

When this is wrong
------------------
Validation rows from another source than the training rows open the same gap. So do labels that are partly wrong, which a model can only
learn by heart; both are mended elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Level, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.generalisation import Generalisation, generalisation
from lossdoctor.derive.learnable import learnable
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.strength import slope
from lossdoctor.derive.unseen import field_series, unseen_passes

# All levels are shares of what guessing gives. Starting values: gap of healthy runs up to .13 (.24 where the score suffers a little).
GAP_SMALL, GAP_WIDE = 0.1, 0.3
# The same of the share of wrong answers, which grows less than a loss does (healthy up to .06).
ERRORS_FEW, ERRORS_MANY = 0.06, 0.2
# Rise of the unseen loss since its best; healthy up to .03.
RISE_SMALL, RISE_CLEAR = 0.03, 0.12
CHANCE, CERTAIN = 1.5, 4.0  # the rise in standard deviations of one pass
# The training level over the unseen one: side by side, and where the run fits rows and not the task. Starting values.
BESIDE, LEFT_BEHIND = 0.8, 0.55
STANDING = 0.9  # what a wide gap counts that did not rise: an earlier stop would not have helped, but the fit is as one-sided
NEVER = 0.95  # an unseen loss that was never better than this has learnt nothing that carries over
DOUBTFUL = 0.6  # highest strength where something else may make the gap; in the range of suspicion
SCORE_DROP, SCORE_GAP, ERRORS = 0.01, 0.05, 2.0  # share of a score, and standard errors, that a worse score must exceed
OFFSET, WIDENED = 0.5, 2.0  # difference of input means in deviations, ratio of deviations, between validation and training


def detect(training: Training) -> Detection | None:
    """Weigh the gap at the end, its rise since the best step, and what else could make it."""
    found = generalisation(training)
    if found is None or training.roles:
        return None
    rose = slope(found.risen, RISE_SMALL, RISE_CLEAR) * slope(found.course.sigmas, CHANCE, CERTAIN)
    wide = slope(found.gap, *((ERRORS_FEW, ERRORS_MANY) if found.measure == "error" else (GAP_SMALL, GAP_WIDE)))
    strength = wide * max(rose, STANDING * wide * slope(found.left_behind, BESIDE, LEFT_BEHIND))
    if (found.by_guess and found.carried > NEVER and not learnable(training)) or _differently_measured(training):
        strength = min(strength, DOUBTFUL)
    severity: Severity | None = None if _costs(training, found) else "advice"
    return Detection(strength, _evidence(training, found), _advice(found), severity=severity)


def _differently_measured(training: Training) -> bool:
    """Tell whether validation draws dropout, uses batch statistics, or gets inputs of another scale than training."""
    passes = unseen_passes(training)
    if any(row.get("random") or row.get("sensitive_in_train") for row in passes):
        return True
    own: Sequence[Mapping[str, Any]] = next((row["inputs"] for row in training.rows.get("batch", []) if row.get("inputs")), [])
    other: Sequence[Mapping[str, Any]] = next((row["input"] for row in passes if row.get("input")), [])
    return any(_apart(mine, its) for mine, its in zip(own, other, strict=False))


def _apart(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    figures = [each.get(name) for each in (own, other) for name in ("mean", "std")]
    if own.get("integer") or not all(isinstance(figure, int | float) for figure in figures):
        return False
    mean, spread, its_mean, its_spread = (float(figure or 0.0) for figure in figures)
    if spread <= 0 or its_spread <= 0:
        return False
    return abs(mean - its_mean) > OFFSET * spread or not 1 / WIDENED < its_spread / spread < WIDENED


def _costs(training: Training, found: Generalisation) -> bool:
    """Tell whether the score on unseen rows suffers: not where it got better in the later half, or is as good as on training rows."""
    if not found.score:
        return True
    margin = ERRORS * found.score_error
    if found.score_last > found.score_half_way + margin / 2:
        return False
    own = _own_score(training) if found.score == "correct" else None
    fell = found.score_best - found.score_last > max(SCORE_DROP, margin)
    return own is None or fell or own - found.score_last > max(SCORE_GAP, margin)


def _own_score(training: Training) -> float | None:
    """Return the share of training rows that was right in the last fifth, where it was seen there."""
    logged = training.signals.get("train_correct", Series.of([])).finite()
    called = field_series(training.rows.get("loss_call", []), "correct").finite()
    values = (logged if len(logged) else called).between(training.steps * 4 // 5, training.steps + 1).values
    return float(values.mean()) if len(values) else None


def _evidence(training: Training, found: Generalisation) -> tuple[Evidence, ...]:
    best, end = found.course.best_step, int(found.unseen.steps[-1])
    begins = found.course.onset if found.course.onset is not None else best
    what = "" if found.measure == "loss" else "share of wrong answers "
    unseen = f"{what}{found.course.best:.4g} at its best (step {best}), {found.course.last:.4g} at the end"
    note = f"it rises from step {found.course.onset} on" if found.course.onset is not None else "it does not get better from there"
    unit = "what guessing gives" if found.by_guess else "the start"
    gap = f"{found.trained_last:.1%} of {unit}, on unseen rows {found.last:.1%}"
    last = int(tail(training.series("loss")).steps[-1])
    items = [
        Evidence("validation", (min(begins, end), end), unseen, "an end at its best", note),
        Evidence("loss", (best, max(best, last)), gap, f"a gap below {GAP_SMALL:.0%}"),
    ]
    if found.score and found.measure == "loss":
        name = "correct" if found.score == "correct" else "R2"
        seen = f"{name} {found.score_best:.3f} at its best, {found.score_last:.3f} at the end"
        items.append(
            Evidence("validation", (best, end), seen, "an end at its best", f"unseen rows; standard error {found.score_error:.2g}")
        )
    return tuple(items)


def _advice(found: Generalisation) -> str:
    if found.course.onset is not None:
        return f"Keep the weights of about step {found.course.best_step}, where the unseen loss was best, and regularise to get beyond it."
    return "Regularise (weight decay, dropout, augmentation), use a smaller model, or get more data; training on does not help."


def _run(unseen: Sequence[float | None], trained: float, **more: Any) -> Training:
    """Build a training over 100 steps per pass whose loss halves per pass until it reaches its end; ten balanced classes."""
    last = 100 * len(unseen)
    passes = [
        Row(100 * (i + 1), {"rows": 400, "seen": more.get("seen", 0.0), "loss": loss, "random": more.get("random", False)})
        for i, loss in enumerate(unseen)
    ]
    for row, correct in zip(passes, more.get("correct", ()), strict=False):
        row.fields["correct"] = correct  # type: ignore[index]
    for row in passes:
        row.fields["input"] = [{"mean": more.get("offset", 0.0), "std": 1.0}]  # type: ignore[index]
    call = {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3, "correct": more.get("own", 1.0)}
    rows = {
        "validation": passes,
        "loss_call": [Row(step, call) for step in range(0, last, 100)],
        "batch": [Row(0, {"inputs": [{"mean": 0.0, "std": 1.0}]})],
    }
    return Training(signals={"loss": Series.of([max(trained, 2.3 * 0.993**i) for i in range(last)])}, rows=rows)


_VALLEY = [1.6, 1.1, 0.8, 0.7, 0.66, 0.7, 0.78, 0.9, 1.0, 1.1, 1.2]
_SETTLED = [1.5, 0.9, 0.5, 0.35, 0.3, 0.28, 0.27, 0.28, 0.27, 0.27, 0.28]
_STANDING = [1.8, 1.5, 1.2, 1.05, 1.0, 0.98, 0.97, 0.98, 0.97, 0.98, 0.97]
_DROP = [0.5, 0.6, 0.7, 0.74, 0.76, 0.75, 0.72, 0.7, 0.69, 0.68, 0.67]

_NOISE = "deviation = {0} * x_train.std(0)\nx_train, x_test = (part + deviation * torch.randn(part.shape) for part in (x_train, x_test))"


def _long(kinds: tuple[str, ...], size: tuple[int, int], amounts: Sequence[str], data: str) -> Iterator[Plant]:
    """Build the plants of a kind of recipe: data that are hard to tell apart, a wide model, and far too many epochs."""
    levels: tuple[Level, ...] = ("mild", "middle", "severe")
    wide = ("model", r"^WIDTH = \d+$", f"WIDTH = {size[0]}")
    longer = ("loop", r"^EPOCHS = \d+$", f"EPOCHS = {size[1]}")
    for level, amount in zip(levels, amounts, strict=True):
        edit = "\\1\n" + data.format(amount)
        yield Plant(level, "data", r"^(x_train, y_train, x_test, y_test = load\(SEED\))$", edit, kinds, (wide, longer))


FAULT = Fault(
    code="REG001",
    slug="overfitting",
    title="Overfitting",
    detect=detect,
    needs=("loss", "validation"),
    fix="Keep the weights of the best step; regularise, use a smaller model or get more data.",
    severity="warning",
    explains=("memorisation-staircase", "validation-too-small"),
    examples=(
        Example("sick", _run(_VALLEY, 0.01, correct=_DROP), "falls, then rises, and the score with it"),
        Example("sick", _run(_VALLEY, 0.05), "falls, then rises; no score was measured"),
        Example("sick", _run(_STANDING, 0.01, correct=[0.7] * 11), "stands far above a training loss of nothing"),
        Example("sick", _run([None] * 11, 0.01, correct=_DROP), "the script measures the score alone, which falls"),
        Example("healthy", _run(_SETTLED, 0.2, correct=[0.9] * 11), "both settle side by side"),
        Example(
            "healthy", _run([0.5, 0.3, 0.2, 0.12, 0.1, 0.09, 0.09, 0.1, 0.1, 0.11, 0.11], 0.0005), "learnt by heart, and right as well"
        ),
        Example("healthy", _run([None] * 11, 0.001, correct=[0.9, 0.94, *[0.96] * 9]), "the score alone, and it is good"),
        Example("look-alike", _run([2.3, 2.35, 2.4, 2.5, 2.6, 2.8, 3.0, 3.1, 3.2, 3.3], 0.3), "never better than guessing: the labels"),
        Example("look-alike", _run(_VALLEY, 0.01, seen=0.95), "the passes ran on training rows"),
        Example("look-alike", _run(_VALLEY, 0.01, offset=3.0), "validation inputs are prepared differently"),
        Example("look-alike", _run(_VALLEY, 0.01, random=True), "validation draws dropout"),
        Example("look-alike", _run([0.6, 0.5, 0.45, 0.5, 0.42, 0.47, 0.44, 0.46], 0.9), "heavy dropout: validation is the better"),
        Example("known miss", _run(_VALLEY[:3], 0.01), "three passes show no rise"),
    ),
    # Inputs as noisy as given, in training and validation alike, a wide model and many epochs; of tokens, a piece of the text.
    plants=(
        *_long(("language-model",), (128, 40), ("420", "210", "130"), "x_train, y_train = x_train[:{0}], y_train[:{0}]"),
        *_long(("images",), (48, 40), ("0.77", "1.4", "2.2"), _NOISE),
        *_long(("regression",), (256, 40), ("0.77", "1.4", "2.2"), _NOISE),
    ),
    treatment=Treatment("stop_early", {}, moves="validation", direction="down"),
    bigger_machine=BiggerMachine("no", "a larger machine would only learn the same rows by heart sooner"),
    decides_with=("unseen", "baseline"),
)
