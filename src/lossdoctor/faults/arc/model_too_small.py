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

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# Relative loss after memorising, median of five fresh starts: at most .0095 healthy (three recipes: .01), .41-1.6 too small (field guide,
# "Measured"), .12 and up for two units of tanh; "final loss above 0.1 fails" (the same).
ABLE, UNABLE = 0.05, 0.1
# Training loss over guessing at the end: a model that got this low is not too small for its task (starting values).
FITTED, UNFITTED = 0.15, 0.4
RUNS_AWAY = 2.0  # a model that is too small settles near guessing; one that ends far above it was driven there (starting value)
DOUBTFUL = 0.5  # without the experiment


def detect(training: Training) -> Detection | None:
    """Weigh a training loss that stops high, then whether fresh starts memorise sixteen examples."""
    if training.roles or _unregistered(training):
        return None
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None or seen.level is None or seen.not_finite or seen.level > RUNS_AWAY:
        return None
    high = slope(seen.level, FITTED, UNFITTED)
    if high <= 0.0:
        return None
    found = training.experiments.get("memorise")
    if found is None or found.status != "done" or "fresh_median" not in found.facts:
        return Detection(DOUBTFUL * high, (_loss(training, seen.level),))
    facts = found.facts
    best = min(float(facts["fresh_median"]), float(facts["own"]))
    strength = ramp(best, ABLE, UNABLE) * high
    tried = Evidence(
        "memorise",
        (0, training.steps),
        f"{best:.2f} of guessing at best",
        f"below {ABLE}",
        f"{facts['rows']} examples, from the run's own start and {len(facts['fresh'])} fresh ones",
    )
    return Detection(strength, (tried, _loss(training, seen.level)), _advice(training)) if strength > 0 else None


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
        Example("healthy", _run(0.05, 0.005), "learns"),
        Example("healthy", _run(0.6, 0.004), "a hard task, an able model"),
        Example("look-alike", _run(1.0, 1.0, 0.007), "dead at its own start, able from fresh ones"),
        Example("look-alike", _run(1.0, 0.009, 0.009), "rate or labels: the model memorises"),
        Example("look-alike", _run(50.0, 0.7, 0.7), "ran away: the rate, the start or the inputs"),
        Example("look-alike", _run(0.7), "high and flat, nothing tried yet: suspected only"),
    ),
    plants=(
        Plant("middle", "model", r"^WIDTH = \d+$", "WIDTH = 2"),
        Plant("mild", "model", r"^WIDTH = \d+$", "WIDTH = 3"),
        Plant("severe", "model", r"^WIDTH = \d+$", "WIDTH = 1"),
    ),
    bigger_machine=BiggerMachine("no", "a larger model, which probably fits the machine at hand"),
    decides_with=("memorise",),
)
