"""The start is far too large or too small: the first loss is many times what guessing gives, or nothing reaches the output.

What you see
------------
The first loss is ten to a hundred times ln(classes); much of the run is spent on getting down to it, or the loss never gets there.

Why it happens
--------------
Weights drawn with a standard deviation far from what the layer's width asks for multiply through the layers; an embedding shared with
the output layer keeps its N(0, 1) start.

How it is told apart
--------------------
A first loss far above guessing is confident and wrong. One forward each tells whose fault it is: standardised inputs cure it where the
inputs are to blame; where they are not, or change little, and the rate cannot act on it, the start remains. Default starts of the same
model show what is usual, though a model whose classes give the bad start themselves keeps it.

What to do
----------
Draw weights with variance 2 / fan-in (He) or 1 / fan-in (Glorot); give an embedding that is tied to the output a standard deviation
of about 0.02.

When this is wrong
------------------
A run that continues from weights trained for another task may start far above guessing and recover at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, slope

# First loss over what an untrained model should have: .98-1.3 healthy, odd healthy up to 3.3, bad start 25-180 (field guide).
USUAL, BAD = 3.5, 9.0
CURED = 0.5  # standardised inputs that halve the excess are to blame themselves
# Of losses whose level at the start is not known: the first over that of default starts, the last over guessing (starting values).
BESIDE, FAR = 10.0, 100.0
LEARNT, FAILED = 0.5, 0.9
DOUBTFUL = 0.75  # without the experiment
CONFIDENT = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy_with_logits",
    "binary_cross_entropy",
)  # losses with a known level at the start


def detect(training: Training) -> Detection | None:
    """Weigh the first loss against guessing, and what standardised inputs do to it."""
    if training.roles or training.phase_of is not None:
        return None
    level = expected_level(training)
    calls = training.rows.get("loss_call")
    if level is None or not calls or calls[0].get("kind") not in CONFIDENT:
        return _beside_default(training)
    losses = training.series("loss").finite()
    if not len(losses) or losses.steps[0] != training.series("loss").steps[0]:
        return None
    first = losses.first  # before the rate has acted: the second loss may be the rate's doing
    ratio = first / level.highest
    strength = ramp(ratio, USUAL, BAD)
    if strength <= 0:
        return None
    evidence = [Evidence("loss", (0, 0), f"{first:.3g} at first, {ratio:.1f} times guessing", f"about {level.highest:.3g}")]
    found = training.found("standardise")
    if not found:
        return Detection(min(strength, DOUBTFUL) if _floating(training) else strength, tuple(evidence))
    before, after = float(found["first"]), float(found["standardised"])
    excess = (after - level.highest) / max(before - level.highest, 1e-9)
    evidence.append(
        Evidence(
            "standardise",
            (0, 0),
            f"{after:.3g} with standardised inputs",
            f"{before:.3g} as it was",
            f"{float(found['reinitialised']):.3g} from default starts",
        )
    )
    if _floating(training) and excess < CURED:
        return None
    return Detection(strength, tuple(evidence))


def _beside_default(training: Training) -> Detection | None:
    """Weigh the first loss of a regression or a loss of its own against that of default starts, where the run ends far above guessing."""
    found, level = training.found("standardise"), expected_level(training)
    seen = outcome(training.series("loss"), level.guess if level else None)
    before, default, after = (float(found.get(name) or 0.0) for name in ("first", "reinitialised", "standardised"))
    if seen is None or not (0 < default < before < math.inf) or (_floating(training) and after < CURED * before):
        return None
    failing = 1.0 if seen.not_finite or seen.lost else slope(seen.level or 0.0, LEARNT, FAILED)
    strength = ramp(before / default, BESIDE, FAR) * failing
    told = Evidence("standardise", (0, 0), f"{before:.3g} at first, {default:.3g} from default starts", "about the same", "the same batch")
    ended = Evidence("loss", (0, max(training.steps - 1, 0)), f"{seen.last:.3g} at the end", "far below default starts")
    return Detection(strength, (told, ended)) if strength > 0 else None


def _floating(training: Training) -> bool:
    """Tell whether the inputs are amounts, which may be unscaled, and not token ids."""
    batches = training.rows.get("batch", [])
    return not batches or any(not given.get("integer") for given in batches[0].get("inputs") or [])


def _run(
    first: float,
    standardised: float | None = None,
    integer: bool = False,
    end: float = 1.0,
    kind: str = "cross_entropy",
    after: Sequence[float] = (),
    default: float = 2.4,
) -> Training:
    call = Row(0, {"kind": kind, "guess_loss": 2.3, "zero_loss": 2.3})
    batch = Row(0, {"inputs": [{"integer": integer, "mean": 0.0, "std": 1.0}]})
    facts = {"first": first, "standardised": standardised, "reinitialised": default, "both": default, "guess": 2.3}
    done = {"standardise": Experiment("standardise", "done", 0.1, facts)} if standardised is not None else {}
    loss = [first, *after] if after else [first] * 3 + [first + (end - first) * step / 30 for step in range(30)]
    return Training(signals={"loss": Series.of(loss)}, rows={"loss_call": [call], "batch": [batch]}, experiments=done)


FAULT = Fault(
    code="INI002",
    slug="init-scale-wrong",
    title="The start is far too large or too small",
    detect=detect,
    needs=("loss",),
    fix="Draw weights with variance 2 / fan-in (He) or 1 / fan-in (Glorot); an embedding tied to the output wants a deviation of 0.02.",
    severity="error",
    explains=("lr-too-high", "exploding-gradients", "saturated-units", "plateau-then-drop", "loss-noisy", "too-few-epochs", "loss-spike"),
    examples=(
        Example("sick", _run(90.0, integer=True), "token ids, a first loss of ninety"),
        Example("sick", _run(128.0, 120.0), "standardised inputs change nothing"),
        Example("healthy", _run(2.35), "starts at guessing"),
        Example("healthy", _run(6.0, 5.9), "two and a half times guessing: odd, and usual"),
        Example("look-alike", _run(2.4, after=[400.0] * 30), "starts at guessing, thrown out by the first step: the rate"),
        Example("look-alike", _run(128.0, 2.4), "standardised inputs cure it: they are unscaled"),
        Example("sick", _run(6e5, 5e6, end=300.0, kind="", default=1.5), "a loss of its own, far from that of default starts"),
        Example("healthy", _run(400.0, 390.0, kind="mse_loss", after=[0.1] * 60), "far from default starts, and learns"),
        Example("look-alike", _run(90.0, 88.0, end=80.0, kind="mse_loss", default=89.0), "a regression whose targets are large"),
        Example("known miss", _run(9.0, 8.9), "four times too high"),
    ),
    plants=(
        Plant(
            "mild",
            "model",
            r"^initialise\(model\)$",
            "initialise(model)\nfor parameter in model.parameters():\n    parameter.data.mul_(4.0)",
        ),
        Plant(
            "middle",
            "model",
            r"^initialise\(model\)$",
            "initialise(model)\nfor parameter in model.parameters():\n    parameter.data.mul_(7.0)",
        ),
        Plant(
            "severe",
            "model",
            r"^initialise\(model\)$",
            "initialise(model)\nfor parameter in model.parameters():\n    parameter.data.mul_(30.0)",
        ),
    ),
    treatment=Treatment("reinitialise", {}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "the start is as far off on any machine"),
    decides_with=("standardise",),
)
