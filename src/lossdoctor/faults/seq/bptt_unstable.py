"""Gradients through time vanish or explode: a recurrent network cannot learn what lies some steps back.

What you see
------------
The loss stays where guessing is, or where what the last inputs tell leads; longer sequences are worse than short ones. Or the loss jumps
and becomes NaN, and clipping only delays it.

Why it happens
--------------
From one step of time to the next the gradient is multiplied by the same recurrent weights. Below a length of one nothing of the first
steps arrives after some dozens, above it the product explodes.

How it is told apart
--------------------
The gradient of the last state by the first step is compared with that by the last. Decay alone is usual and harmless where the answer lies
near; so the network is trained for some steps as it is, and with orthogonal recurrent weights and gates that stay open. A fault is a run
that fails and does better then. A rate that is too low, meaningless labels or a small model do not.

What to do
----------
Orthogonal recurrent weights, an LSTM or GRU with a forget bias of one or more, a clipped gradient norm; shorter sequences, or attention.

When this is wrong
------------------
Where the kept start learns no better within the time of the experiment, a fault that needs hundreds of steps is only suspected, or missed.
"""

from __future__ import annotations

import math
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# First over last gradient through time: 1e-2 to 3 for the bench's networks over 24 steps (measured); the bounds are starting values.
FADES, FADED = 1e-3, 1e-5
GROWS, GROWN = 1e3, 1e5
LEARNT, FAILED = 0.6, 0.9  # last loss over guessing
GAIN, GREAT = 0.1, 0.3  # of guessing, by which the kept start must do better (starting values)
SUSPECTED = 0.5  # where the kept start could not be tried


def detect(training: Training) -> Detection | None:
    """Weigh the gradient through time, whether the run fails, and what a start that keeps it gains."""
    facts = training.experiment("through_time")
    ratio = facts.get("ratio")
    if not isinstance(ratio, (int, float)) or not ratio > 0:
        return None
    extreme = max(ramp(float(ratio), FADES, FADED), ramp(float(ratio), GROWS, GROWN))
    failing = _failing(training)
    strength = 0.95 * extreme * failing * _gained(facts)
    if not strength > 0:
        return None
    what = "vanish" if ratio < 1 else "explode"
    through = Evidence(
        "through_time", (0, 0), f"{float(ratio):.1e}", "0.01 to 100", f"first over last of {facts.get('steps')} steps of time"
    )
    fix = f"Gradients {what}: give the recurrent weights an orthogonal start and an open forget gate, and clip the gradient norm."
    return Detection(strength, (through, *_trained(facts)), fix=fix)


def _failing(training: Training) -> float:
    level = expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    if seen is None:
        return 0.0
    return 1.0 if seen.not_finite or seen.lost else slope(seen.level or 0.0, LEARNT, FAILED)


def _gained(facts: Any) -> float:
    """Return how surely the kept start learns better; a suspicion where it was not tried."""
    own, kept = facts.get("own"), facts.get("kept")
    unit = _number(facts.get("guess")) or abs(_number(facts.get("start")))
    if own is None or kept is None:
        return SUSPECTED
    if not math.isfinite(_number(own)) and math.isfinite(_number(kept)):
        return 1.0
    return slope((_number(own) - _number(kept)) / unit, GAIN, GREAT) if unit > 0 else 0.0


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan if isinstance(value, str) else 0.0


def _trained(facts: Any) -> tuple[Evidence, ...]:
    if facts.get("own") is None or facts.get("kept") is None:
        return ()
    trained = int(_number(facts.get("trained")) or 0) if math.isfinite(_number(facts.get("trained"))) else 0
    note = f"after {trained} steps with recurrent weights that keep the length of what they carry"
    return (Evidence("through_time", (0, trained), f"loss {_number(facts['own']):.3g}", f"{_number(facts['kept']):.3g}", note),)


def _run(ratio: float, end: float, own: float | None = None, kept: float | None = None) -> Training:
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 1.4, "zero_loss": 1.4})
    facts = {"kind": "GRU", "steps": 80, "ratio": ratio, "factor": ratio ** (1 / 79)}
    tried = {} if own is None else {"own": own, "kept": kept, "start": 1.4, "trained": 150, "guess": 1.4}
    loss = Series.of([1.4 + (end - 1.4) * step / 59 for step in range(60)])
    done = {"through_time": Experiment("through_time", "done", 5.0, facts | tried)}
    return Training(signals={"loss": loss}, rows={"loss_call": [call]}, experiments=done)


FAULT = Fault(
    code="SEQ001",
    slug="bptt-unstable",
    title="Gradients through time vanish or explode",
    detect=detect,
    needs=("loss", "through_time"),
    fix="Give recurrent weights an orthogonal start and an open forget gate, clip the gradient norm, or shorten the sequences.",
    severity="error",
    explains=(
        "loss-flat",
        "underfitting",
        "vanishing-gradients",
        "exploding-gradients",
        "saturated-units",
        "loss-not-finite",
        "loss-diverged",
        "lr-too-high",
        "lr-too-low",
        "model-too-small",
        "init-scale-wrong",
        "plateau-then-drop",
    ),
    examples=(
        Example("sick", _run(1e-12, 1.38, 1.38, 0.4), "nothing of the first steps arrives, and a kept start learns"),
        Example("sick", _run(1e8, 5.0, 4.0, 0.7), "explodes, and a kept start learns"),
        Example("healthy", _run(0.3, 0.1), "even through time"),
        Example("healthy", _run(1e-9, 0.2, 0.2, 0.15), "a gated network that forgets, and learns"),
        Example("look-alike", _run(1e-9, 1.38, 1.38, 1.37), "fails the same with a kept start: labels, or the rate"),
        Example("look-alike", _run(0.5, 1.38), "fails with even gradients"),
        Example("known miss", _run(1e-9, 1.38, 1.38, 1.25), "the kept start has only begun to learn"),
    ),
    bigger_machine=BiggerMachine("no", "the product of weights is the same on any machine"),
    decides_with=("through_time",),
)
