"""The model cannot fit even sixteen examples: it has too few units, or a layer too narrow for what must pass through it.

What you see
------------
Training and validation loss stop at the same high level, far from zero; longer training and other rates change little.

Why it happens
--------------
Everything that the output depends on must pass through the narrowest layer. Two units cannot carry ten classes.

How it is told apart
--------------------
The model is given sixteen captured examples and three hundred steps of Adam at three rates, dropout off, from its own start and
from five fresh ones. A model that is able memorises them within some forty steps, whatever the rate, the loop and the labels of the
run were; dead units, a bad start or a wrong rate fail from the own start at most and pass from fresh ones. Only the
model itself fails both.

What to do
----------
Widen the narrowest layer until sixteen examples are memorised, then until validation stops improving. It very probably still fits
the machine.

When this is wrong
------------------
An output that cannot reach the targets (a sigmoid over targets beyond 1), or a loss whose lowest value is far above zero, fails as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Level, Plant
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.strength import ramp, slope
from lossdoctor.derive.trend import trend
from lossdoctor.derive.unseen import field_series, unseen_passes

# Relative loss after memorising, median of five fresh starts: at most .0095 healthy (three recipes: .01), .41-1.6 too small (field guide,
# "Measured"), .12 and up for two units of tanh; "final loss above 0.1 fails" (the same).
ABLE, UNABLE = 0.05, 0.1
# Training loss over guessing at the end: below the first nobody looks for this, above the last it is high whatever the task
# (starting values).
LOW, FITTED, UNFITTED = 0.05, 0.15, 0.4
# The same over what a small reference network reaches on rows that it never saw: two units of a noisy regression 2.9 and more
# (starting values).
REACHED, MISSED = 1.5, 2.2
WORTH = 0.1  # of guessing, on unseen rows: below it there is little to win (starting value)
# Loss on rows left out over that of a model eight times as wide (starting values), where the run's own loss fell by less than GAIN
# of itself at its end.
ALIKE, WORSE = 1.25, 1.6
# Loss of a fresh start on rows left out over the level at which the run ended (starting values): far below it the model is able, far
# above it the time was too short to tell.
ABOVE, AS_FAR, ARRIVED, SHORT = 0.5, 0.75, 1.6, 2.2
GAIN, END = 0.05, 0.3
RUNS_AWAY = 2.0  # a model that is too small settles near guessing; one that ends far above it was driven there (starting value)
# Share of targets between yes and no: greys of a picture, classes mixed; or of a target that is spread over all classes (starting value).
FRACTIONAL = 0.05
DOUBTFUL = 0.5  # without the experiment


def detect(training: Training) -> Detection | None:
    """Weigh a training loss that stops high, then whether fresh starts memorise sixteen examples."""
    if training.roles or _unregistered(training):
        return None
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None or seen.level is None or seen.not_finite or seen.level > RUNS_AWAY:
        return None
    if seen.level <= LOW:
        return None
    facts = training.found("memorise")
    if "fresh_median" not in facts:
        return Detection(DOUBTFUL * slope(seen.level, LOW, FITTED), (_loss(training, seen.level),))
    # What a model memorises once its inputs are scaled is large enough: the inputs are the matter.
    best = min(float(facts[name]) for name in ("fresh_median", "own", "standardised") if facts.get(name) is not None)
    unable = ramp(best, ABLE, UNABLE)
    high, beside = _high(training, seen.level)
    tried = Evidence(
        "memorise",
        (0, training.steps),
        f"{best:.2f} of guessing at best",
        f"below {ABLE}",
        f"{facts['rows']} examples, from the run's own start and {len(facts['fresh'])} fresh ones",
    )
    evidence = (tried, _loss(training, seen.level), *beside)
    if unable < 1.0 and "baseline" not in training.experiments and not _falls_on(training):
        # Sixteen examples are too easy for a test where there are nearly as many inputs: what a small network reaches tells more.
        return Detection(DOUBTFUL * slope(seen.level, LOW, FITTED), (_loss(training, seen.level),))
    wider = _widened(training, seen.level) if beside and not _falls_on(training) else None
    strength = max(unable * high, wider[0] if wider else 0.0)
    if unable * high == 0.0 and wider is not None:
        evidence = (*beside, *wider[1], _loss(training, seen.level))
    if _never_zero(training) or (facts.get("off_scale") and "standardised" not in facts):
        strength = min(strength, DOUBTFUL)
    return Detection(strength, evidence, _advice(training)) if strength > 0 else None


def _never_zero(training: Training) -> bool:
    """Tell whether the loss cannot get to zero whatever the model is: it has several terms, or targets between yes and no."""
    facts = training.found("objective")
    if any(float(row.get("label_smoothing") or 0.0) > FRACTIONAL for row in training.rows.get("loss_call", [])[:1]):
        return True
    return len(facts.get("terms") or ()) > 1 or float(facts.get("fractional") or 0.0) > FRACTIONAL


def _unseen_level(training: Training) -> float:
    """Return the best unseen loss over guessing: training losses are high with dropout and with augmentation, whatever the model's size."""
    expected = expected_level(training)
    losses = field_series(unseen_passes(training), "loss").finite() if training.has("validation") else None
    return float(losses.values.min()) / expected.guess if expected and losses else float("inf")


def _falls_on(training: Training) -> bool:
    """Tell whether the loss still fell at the end: a run that was ended early has not shown what its model can do."""
    end = tail(training.series("loss"), END)
    found = trend(end)
    return found.falls and -found.slope * END * training.steps > GAIN * float(end.values.mean())


def _widened(training: Training, level: float) -> tuple[float, tuple[Evidence, ...]]:
    """Weigh what a wider model reaches on rows left out: it confirms what the small network showed, where sixteen examples are too easy."""
    if "widen" not in training.experiments:
        return DOUBTFUL, ()
    facts, expected = training.found("widen"), expected_level(training)
    if not facts:
        return 0.0, ()
    # A fresh start that gets far below the run's own end is able, whatever more width would bring.
    held_back = float(facts["own"]) / max(level * expected.guess, 1e-12) if expected else 0.0
    ratio = float(facts["own"]) / max(float(facts["wide"]), 1e-12)
    seen = Evidence(
        "widen",
        (0, int(facts["steps"])),
        f"{ratio:.1f} times the loss of a model {facts['factor']} times as wide",
        f"below {ALIKE}",
        f"on {facts['unseen_rows']} rows left out, both trained alike from fresh weights",
    )
    return slope(ratio, ALIKE, WORSE) * slope(held_back, ABOVE, AS_FAR) * ramp(held_back, SHORT, ARRIVED), (seen,)


def _high(training: Training, level: float) -> tuple[float, tuple[Evidence, ...]]:
    """Return how surely the training loss stopped high: by itself, or beside what a small network reaches on rows that it never saw."""
    alone = slope(level, FITTED, UNFITTED)
    reached = training.found("baseline").get("network_loss")
    if reached is None:
        return max(alone, DOUBTFUL * slope(level, LOW, FITTED)), ()
    level = min(level, _unseen_level(training))
    beside = slope(level / max(float(reached), 1e-9), REACHED, MISSED) if level > WORTH else 0.0
    seen = Evidence(
        "baseline", (0, training.steps), f"{float(reached):.2f} of guessing", f"{level:.2f} as here", "a small network on rows left out"
    )
    return max(alone, beside), (seen,) if beside > 0 else ()


def _unregistered(training: Training) -> bool:
    """Tell whether layers that the optimiser cannot see keep the model from using what it has."""
    return any(row.get("unregistered") for row in training.rows.get("coverage", []))


def _loss(training: Training, level: float) -> Evidence:
    return Evidence("loss", (0, max(training.steps - 1, 0)), f"ends at {level:.2f} of guessing", f"below {FITTED}")


def _advice(training: Training) -> str:
    layers = [layer for layer in (training.fact("model") or {}).get("layers", []) if len(layer.get("shape") or ()) >= 2]
    widths = [(int(layer["shape"][0]), str(layer["name"])) for layer in layers[:-1]]
    if not widths:
        return ""
    width, name = min(widths)
    return f"Widen {name or 'the narrowest layer'}: its {width} units are the narrowest of the model. Try {max(16, 4 * width)}."


def _run(end: float, own: float | None = None, fresh: float = 0.005) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    facts = {"rows": 16, "own": own, "fresh": [fresh] * 5, "fresh_median": fresh}
    done = {"memorise": Experiment("memorise", "done", 1.0, facts)} if own is not None else {}
    loss = [2.3 + (end * 2.3 - 2.3) * min(1.0, step / 60) for step in range(120)]
    return Training(signals={"loss": Series.of(loss)}, rows={"loss_call": [call]}, experiments=done)


def _beside(end: float, reached: float, own: float, wide: float, unseen: float | None = None) -> Training:
    """Build a training whose model memorises, with what a small network and a wider model reach, all over guessing."""
    training = _run(end, 0.004)
    training.experiments["baseline"] = Experiment("baseline", "done", 1.0, {"rows": 1000, "held_out": 250, "network_loss": reached})
    facts = {"factor": 8, "own": 2.3 * own, "wide": 2.3 * wide, "unseen_rows": 250, "steps": 300}
    training.experiments["widen"] = Experiment("widen", "done", 1.0, facts)
    if unseen is not None:
        training.rows["validation"] = [Row(step, {"rows": 300, "loss": 2.3 * unseen, "seen": 0.0}) for step in (10, 50, 90, 110)]
    return training


# Sixteen positions of two channels are 32 features, which is enough: so the positions are pooled as well.
_POOLED = (("model", r"nn\.Flatten\(\),", "nn.AdaptiveAvgPool2d(1), nn.Flatten(),"), ("model", r"WIDTH \* 16", "WIDTH"))


def _narrowed(kinds: tuple[str, ...], widths: tuple[int, ...], *also: tuple[str, str, str]) -> Iterator[Plant]:
    levels: tuple[Level, ...] = ("mild", "middle", "severe")
    for level, width in zip(levels, widths, strict=True):
        yield Plant(level, "model", r"^WIDTH = \d+$", f"WIDTH = {width}", kinds, also)


FAULT = Fault(
    code="ARC001",
    slug="model-too-small",
    title="The model is too small for the task",
    detect=detect,
    needs=("loss",),
    fix="Widen the narrowest layer until sixteen examples are memorised; the larger model very probably fits this machine.",
    severity="error",
    explains=("underfitting", "loss-flat", "too-few-epochs", "plateau-then-drop"),
    examples=(
        Example("sick", _run(0.85, 0.8, 0.5), "two units for ten classes"),
        Example("sick", _run(1.0, 1.0, 0.41), "own start dead as well"),
        Example(
            "sick", _beside(0.28, 0.03, 0.36, 0.05), "as many inputs as examples to memorise, and far from what a small network reaches"
        ),
        Example("healthy", _beside(0.3, 0.25, 0.3, 0.29), "noisy targets: nothing does better"),
        Example("look-alike", _beside(0.9, 0.03, 0.1, 0.05), "rate: a fresh start gets far below the run's end"),
        Example("look-alike", _beside(0.28, 0.03, 0.9, 0.4), "no time to tell: the fresh start did not get as far as the run"),
        Example("look-alike", _beside(0.4, 0.03, 0.36, 0.05, 0.06), "dropout: unseen rows show that the model is able"),
        Example("healthy", _run(0.05, 0.005), "learns"),
        Example("healthy", _run(0.6, 0.004), "a hard task, an able model"),
        Example("look-alike", _run(1.0, 1.0, 0.007), "dead at its own start, able from fresh ones"),
        Example("look-alike", _run(1.0, 0.009, 0.009), "rate or labels: the model memorises"),
        Example("look-alike", _run(50.0, 0.7, 0.7), "ran away: the rate, the start or the inputs"),
        Example("look-alike", _run(0.7), "high and flat, nothing tried yet: suspected only"),
    ),
    plants=(*_narrowed(("images",), (3, 2, 1), *_POOLED), *_narrowed((), (3, 2, 1))),
    bigger_machine=BiggerMachine("no", "a larger model, which probably fits the machine at hand"),
    decides_with=("memorise", "baseline", "widen"),
)
