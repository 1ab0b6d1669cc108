"""Hidden units put out zero for every example: no gradient passes through them, and they never come back.

What you see
------------
The loss stays at what guessing gives from the first step on, or falls as if the model were far smaller. Gradients of whole layers are
exactly zero.

Why it happens
--------------
A rectified unit whose input is below zero for every example has output and gradient zero. Strongly negative biases, a start that is
far too large, inputs far off zero, or one huge step push whole layers there.

How it is told apart
--------------------
A unit is dead where its weight and its bias have a gradient of exactly zero for a whole batch. All units of a hidden layer dead at the
first step is a matter of the start; units that die right after a jump of the loss are a consequence of the rate, which then explains
this. A model that is too small has living units. The experiment decides: from its own start the model cannot memorise sixteen examples,
from fresh ones it can.

What to do
----------
Start from the default or He initialisation with biases at zero; use a leaky activation if units still die.

When this is wrong
------------------
Layers that are switched off on purpose (gates, experts that a batch does not reach, padded positions) look dead for a while; they
come to life at later batches.
"""

from __future__ import annotations

import math

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.dead import dead_throughout, worst_layer
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# Share of a layer's units with exactly zero gradients: 1.0 at step 0 dead, at most .24 healthy (field guide, "Measured").
ALIVE, DEAD = 0.6, 0.97
# Training loss over guessing at the end: below it dead units cost little (starting values).
LEARNT, FAILED = 0.4, 0.8
# Relative loss after memorising: fresh starts at most .007 where units were dead (field guide, "Measured").
ABLE, UNABLE = 0.05, 0.2
# Loss on rows left out of a repetition from the own start over that from a fresh one, after as many steps (starting values).
AS_GOOD, BETTER = 1.02, 1.1
DOUBTFUL = 0.75  # without the experiment
# So few units are all dead by chance: each is at one start in four to one in two where the inputs have one sign (starting value).
FEW = 4


def detect(training: Training) -> Detection | None:
    """Weigh the worst hidden layer's share of dead units at the start and at the end, and whether fresh starts do better."""
    if training.roles:
        return None
    series = training.series("zero_rows")
    first, name = worst_layer(series, 0)
    last, last_name = worst_layer(series, -1)
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None or seen.level is None or last <= ALIVE:
        return None
    failing = slope(seen.level, LEARNT, FAILED)
    strength = slope(last, ALIVE, DEAD) * failing
    evidence = [
        Evidence(
            "zero_rows",
            (int(series.steps[0]), int(series.steps[-1])),
            f"{first:.0%} at first, {last:.0%} at last",
            f"below {ALIVE:.0%}",
            f"units of {last_name or name} whose gradients are exactly zero",
        )
    ]
    found = training.found("memorise")
    if "fresh_median" in found:
        own, fresh = float(found["own"]), float(found["fresh_median"])
        repeated = _repeated(training)
        told = ramp(own, ABLE, UNABLE) * (1 - ramp(fresh, ABLE, UNABLE)) if first > ALIVE else 1.0
        if told == 0.0 and dead_throughout(training):  # to be settled by the repetition
            told = min(repeated[0] if repeated else DOUBTFUL, DOUBTFUL if _units(training, name) <= FEW else 1.0)
            evidence += [repeated[1]] if repeated else []
        strength *= told
        evidence.append(
            Evidence(
                "memorise",
                (0, training.steps),
                f"{own:.2f} of guessing from the own start, {fresh:.3f} from fresh ones",
                f"below {ABLE} from both",
            )
        )
    elif first > ALIVE:
        strength = min(strength, DOUBTFUL)
    evidence.append(Evidence("loss", (0, max(training.steps - 1, 0)), f"ends at {seen.level:.2f} of guessing", f"below {LEARNT}"))
    return Detection(strength, tuple(evidence)) if strength > 0 else None


def _units(training: Training, weight: str) -> float:
    """Return how many units a layer has; infinity where that is not known."""
    layers = (training.fact("model") or {}).get("layers") or []
    sizes = [float(layer["shape"][0]) for layer in layers if layer.get("shape") and weight == f"{layer.get('name')}.weight"]
    return min(sizes, default=math.inf)


def _repeated(training: Training) -> tuple[float, Evidence] | None:
    """Weigh a repetition from fresh weights: where other paths lead past the dead layer, sixteen examples are memorised all the same."""
    facts = training.found("unseen")
    if not facts.get("fresh") or not facts.get("guess") or "own_best" not in facts or not dead_throughout(training):
        return None
    own, fresh = (float(facts[name]) / float(facts["guess"]) for name in ("own_best", "unseen_best"))
    seen = Evidence(
        "unseen",
        (0, int(facts["steps"])),
        f"{own:.2f} of guessing on rows left out from the own start, {fresh:.2f} from a fresh one",
        "about the same from both",
        f"after {facts['steps']} steps",
    )
    return slope(own / max(fresh, 1e-9), AS_GOOD, BETTER), seen


def _run(first: float, last: float, end: float, own: float | None = None, fresh: float = 0.006) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    names = ["0.weight", "2.weight", "4.weight"]
    signals = {
        "loss": Series.of([2.3 + (end * 2.3 - 2.3) * step / 59 for step in range(60)]),
        "zero_rows": Series.of([[first, first / 2, 0.0], [last, last / 2, 0.0]], [0, 59], names),
    }
    facts = {"rows": 16, "own": own, "fresh": [fresh] * 5, "fresh_median": fresh}
    done = {"memorise": Experiment("memorise", "done", 1.0, facts)} if own is not None else {}
    return Training(signals=signals, rows={"loss_call": [call]}, experiments=done)


_DEAD_START = (  # a convolution's own bias is taken away by the normalisation behind it, so that one's bias as well
    "initialise(model)\nfor layer in model.body.modules():\n    if isinstance(layer, (nn.Linear, nn.Conv2d, nn.BatchNorm2d)):\n"
    "        nn.init.constant_(layer.bias, {})"
)

FAULT = Fault(
    code="ARC007",
    slug="dead-units",
    title="Units that output zero for everything",
    detect=detect,
    needs=("loss", "zero_rows"),
    fix="Start from the default or He initialisation with biases at zero; use a leaky activation if units still die.",
    severity="error",
    explains=("loss-flat", "underfitting", "lr-too-low", "vanishing-gradients", "model-too-small", "init-scale-wrong", "step-missing"),
    examples=(
        Example("sick", _run(1.0, 1.0, 1.0, 1.0), "all dead at the start, fresh starts learn"),
        Example("sick", _run(1.0, 0.99, 0.95, 0.9), "nearly all dead"),
        Example("healthy", _run(0.1, 0.2, 0.05), "some dead units, learns"),
        Example("healthy", _run(1.0, 0.1, 0.1), "came to life"),
        Example("look-alike", _run(1.0, 1.0, 1.0, 0.8, 0.5), "fresh starts fail too: the model is too small"),
        Example("look-alike", _run(0.2, 0.3, 1.0), "fails with living units: rate or labels"),
        Example("known miss", _run(0.5, 0.5, 1.0), "half of the units dead"),
    ),
    plants=(
        Plant("mild", "model", r"^initialise\(model\)$", _DEAD_START.format("-5.0"), kinds=("relu",)),
        Plant("middle", "model", r"^initialise\(model\)$", _DEAD_START.format("-20.0"), kinds=("relu",)),
        Plant("severe", "model", r"^initialise\(model\)$", _DEAD_START.format("-100.0"), kinds=("relu",)),
    ),
    treatment=Treatment("revive", {}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "dead units stay dead on any machine"),
    decides_with=("memorise", "unseen"),
)
