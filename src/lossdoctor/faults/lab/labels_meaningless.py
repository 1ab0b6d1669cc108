"""The labels have nothing to do with the inputs: shuffled, misaligned, or of another data set.

What you see
------------
The training loss stays where guessing is, or falls by memorising; the loss on data never trained on does not fall at all.

Why it happens
--------------
Inputs and labels were shuffled, sorted, filtered or joined apart from each other. A network can memorise such pairs, and learns
nothing that holds for another example.

How it is told apart
--------------------
Three witnesses must agree. The run's own loss on unseen rows never gets below what guessing gives, at its best moment. A small
reference network on the captured rows does not get below it either, on rows held out by their hash. And the best of a few classical
models predicts held-out rows no better than the most frequent label. A model that is broken, too small or wrongly driven fails the
first and leaves the other two; label noise leaves all three above chance; overfitting has a good early moment.

What to do
----------
Look at inputs next to their labels, and follow both from where they are read to the batch: one of the two is permuted, shifted or
filtered alone.

When this is wrong
------------------
A task that is hard for every small model (long arithmetic, parity, images of many classes with few examples) and on which the run
fails for another reason looks alike.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Experiment, Floats, Row, Series, Training
from lossdoctor.derive.learnable import learnable
from lossdoctor.derive.level import expected_level, guessed_classes
from lossdoctor.derive.strength import slope
from lossdoctor.derive.unseen import field_series, unseen_passes

# Loss on unseen rows over guessing, at its best: .98-1.0 for meaningless labels, .01-.24 healthy (field guide, "Measured").
LEARNT, NOTHING = 0.85, 0.97
# Reference network: held-out loss over guessing .97-1.0; classical models within .06 of the prior (field guide, "Measured").
NETWORK_LEARNT, NETWORK_NOTHING = 0.90, 0.97
CLASSICAL_GAIN = 0.06
FEW_ROWS = 250  # captured rows under which the answer is "unknown" (field guide)
DOUBTFUL = 0.55  # without the baseline


def detect(training: Training) -> Detection | None:
    """Weigh the run's own unseen loss, then the baseline on captured rows."""
    level = expected_level(training)
    if training.roles or _learnt_in_repetition(training) or (level is not None and level.guess <= 0):
        return None  # where every target is the same there is nothing to be wrong about
    own, evidence = _own(training)
    if own <= 0.0:
        return None
    facts = training.found("baseline")
    if "network_loss" not in facts:
        return Detection(DOUBTFUL * own, evidence) if own > 0.5 and not learnable(training) else None
    network = slope(float(facts["network_loss"]), NETWORK_LEARNT, NETWORK_NOTHING)
    gain = float(facts.get("classical", 0.0)) - float(facts.get("prior", 0.0))
    allowed = max(CLASSICAL_GAIN, 3 * float(facts.get("spread", 0.0)))
    classical = 1.0 if gain < allowed else 0.0
    strength = own * network * classical
    if facts["rows"] < FEW_ROWS:
        strength = min(strength, DOUBTFUL)
    return Detection(strength, (*evidence, *_baseline(training, facts, gain, allowed))) if strength > 0 else None


def _learnt_in_repetition(training: Training) -> bool:
    """Tell whether the script's own model, repeated on some of the rows, learnt what holds for the rest."""
    facts = training.found("unseen")
    return bool(facts.get("guess")) and float(facts["unseen_best"]) < LEARNT * float(facts["guess"])


def _own(training: Training) -> tuple[float, tuple[Evidence, ...]]:
    """Return how surely the run itself learnt nothing that holds for unseen rows."""
    level = expected_level(training)
    passes = unseen_passes(training) if training.has("validation") else []
    losses = field_series(passes, "loss").finite()
    if len(losses) and level is not None:
        best = float(losses.values.min()) / level.guess
        explained = field_series(passes, "r2").finite().values
        if len(explained):  # the unseen targets spread a little less or more than the training's
            best = max(best, 1.0 - float(explained.max()))
        span = (int(losses.steps[0]), int(losses.steps[-1]))
        seen = Evidence("validation", span, f"best loss {best:.2f} of guessing", f"below {LEARNT}", "on rows that were not trained on")
        return slope(best, LEARNT, NOTHING), (seen,)
    correct = field_series(passes, "correct").finite()
    chance = _chance(training)
    if len(correct) and chance is not None:
        best = _lasting(correct.values)
        span = (int(correct.steps[0]), int(correct.steps[-1]))
        seen = Evidence(
            "validation", span, f"{best:.1%} right at best, lastingly", f"clearly above {chance:.1%}", "the most frequent label alone"
        )
        # A model that never trained may be right about one structured set more often than chance has it, and lastingly.
        untrained, at_guessing = _training_loss_alone(training)
        lucky = slope((best - chance) / max(1 - chance, 1e-9), 0.25, 0.08)
        return max(lucky, untrained), (seen, *(at_guessing if untrained > lucky else ()))
    unseen = training.found("unseen")
    if unseen.get("guess"):
        best = float(unseen["unseen_best"]) / float(unseen["guess"])
        seen = Evidence(
            "unseen",
            (0, int(unseen["steps"])),
            f"best loss {best:.2f} of guessing",
            f"below {LEARNT}",
            "on rows struck from a repetition",
        )
        return slope(best, LEARNT, NOTHING), (seen,)
    return _training_loss_alone(training)


def _lasting(values: Floats) -> float:
    """Return the best mean over a quarter of the passes: a single pass of an untrained model may be right by luck."""
    return max(float(part.mean()) for part in np.array_split(values, min(4, len(values))))


def _training_loss_alone(training: Training) -> tuple[float, tuple[Evidence, ...]]:
    """Without any unseen rows: a training loss that stays at guessing is a reason to look, no more."""
    level, loss = expected_level(training), training.series("loss").finite()
    if level is None or not len(loss):
        return 0.0, ()
    end = float(loss.values[-max(1, len(loss) // 10) :].mean()) / level.guess
    seen = Evidence("loss", (int(loss.steps[0]), int(loss.steps[-1])), f"ends at {end:.2f} of guessing", f"below {LEARNT}")
    return slope(end, LEARNT, NOTHING), (seen,)


def _chance(training: Training) -> float | None:
    totals: list[float] = []
    for row in training.rows.get("loss_call", []):
        counts = row.get("class_counts")
        if counts and (not totals or len(counts) == len(totals)):
            totals = [a + b for a, b in zip(totals or [0.0] * len(counts), counts, strict=True)]
    if totals and sum(totals):
        return max(totals) / sum(totals)
    tried = guessed_classes(training)
    return tried[1] if tried else None


def _baseline(training: Training, facts: object, gain: float, allowed: float) -> tuple[Evidence, ...]:
    known = training.experiments["baseline"].facts
    span = (0, training.steps)
    rows = f"{known['rows']} captured rows, {known['held_out']} held out"
    found = [
        Evidence(
            "baseline", span, f"{float(known['network_loss']):.2f} of guessing", f"below {NETWORK_LEARNT}", f"a small network on {rows}"
        )
    ]
    if "classical" in known:
        found.append(
            Evidence(
                "baseline",
                span,
                f"{gain:+.2f} over the constant answer",
                f"above {allowed:.2f}",
                f"the best of a few classical models ({known['classical_name']})",
            )
        )
    return tuple(found)


def _run(unseen: float | None, network: float | None = None, classical: float = 0.1, rows: int = 1000, end: float = 2.3) -> Training:
    """Build a training with four passes over unseen rows, and a baseline where its loss is given."""
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3, "class_counts": [10] * 10})
    recorded = {"loss_call": [call]}
    if unseen is not None:
        recorded["validation"] = [Row(step, {"rows": 300, "loss": unseen * 2.3, "seen": 0.0}) for step in (10, 20, 30, 40)]
    facts = {
        "rows": rows,
        "held_out": rows // 4,
        "prior": 0.1,
        "classical": classical,
        "classical_name": "ExtraTrees",
        "spread": 0.018,
        "network_loss": network,
    }
    done = {"baseline": Experiment("baseline", "done", 1.0, facts)} if network is not None else {}
    return Training(signals={"loss": Series.of([2.3] * 20 + [end] * 20)}, rows=recorded, experiments=done)


_ONE_TARGET = Row(0, {"kind": "cross_entropy", "guess_loss": 0.0, "zero_loss": 0.0, "class_counts": [32]})
_LOADED = r"^(x_train, y_train, x_test, y_test = load\(SEED\))$"


def _shuffled(rows: str) -> str:
    """Return the edit that permutes the labels of some training rows among themselves."""
    return f"\\1\nrows = torch.randperm(len(y_train))[: {rows}]\ny_train[rows] = y_train[rows[torch.randperm(len(rows))]]"


FAULT = Fault(
    code="LAB001",
    slug="labels-meaningless",
    title="Labels have nothing to do with inputs",
    detect=detect,
    needs=("loss",),
    fix="Look at inputs next to their labels and follow both from file to batch: one was shuffled, shifted or filtered alone.",
    severity="error",
    explains=(
        "overfitting",
        "too-few-examples",
        "loss-flat",
        "underfitting",
        "label-noise",
        "memorisation-staircase",
        "too-few-epochs",
        "validation-too-small",
    ),
    examples=(
        Example("sick", _run(1.0, 1.01), "no witness finds anything"),
        Example("sick", _run(0.995, 0.99, end=0.3), "memorised, nothing holds for unseen rows"),
        Example("healthy", _run(0.2, 0.3, 0.9), "learns"),
        Example("healthy", _run(0.7, 0.8, 0.4), "learns something of noisy labels"),
        Example("look-alike", _run(1.0, 0.2, 0.95), "the run fails, the labels can be learnt: rate, loop or model"),
        Example("look-alike", _run(1.0, 1.0, 0.4), "a classical model finds what the network does not"),
        Example("look-alike", Training(signals=_run(1.0).signals, rows={"loss_call": [_ONE_TARGET]}), "every target is the same"),
        Example("look-alike", _run(1.0), "no baseline yet: suspected only"),
        Example("known miss", _run(1.0, 1.01, rows=120), "too few captured rows to say"),
    ),
    plants=(
        Plant("mild", "data", _LOADED, _shuffled("97 * len(y_train) // 100")),
        Plant("middle", "data", _LOADED, _shuffled("len(y_train)")),
        Plant(
            "severe", "data", _LOADED, r"\1\ny_train, y_test = y_train[torch.randperm(len(y_train))], y_test[torch.randperm(len(y_test))]"
        ),
    ),
    bigger_machine=BiggerMachine("no", "it would memorise the same wrong pairs sooner"),
    decides_with=("baseline", "unseen"),
)
