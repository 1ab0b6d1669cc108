"""Inputs come in units of their own, far from a mean of 0 and a spread of 1.

What you see
------------
A first loss many times what guessing gives, a rough or slow beginning, a rate that must be tiny. Sometimes only the first loss shows it
and the score is little worse; sometimes nothing is learnt.

Why it happens
--------------
Layers are initialised for inputs of about unit size. Pixels of 0 to 255, degrees, prices or years make the first layer's outputs as many
times larger: confident wrong answers at the start, gradients as large, saturated units; and one feature of large numbers drowns the others.

How it is told apart
--------------------
The inputs themselves are measured, before the model, feature by feature: that no rate and no initialisation can change. It is a fault
only with a consequence: a first loss far above that of a sound start, large or saturated outputs of the first layer, or a run that
stays poor. Where a normalisation layer comes first, or the model divides by itself, none of these is there. Whole numbers that are
names (tokens, categories) have no scale.

What to do
----------
Subtract the mean and divide by the standard deviation of the training data, feature by feature (pixels: one mean and one deviation per
channel), and do the same to validation data.

When this is wrong
------------------
A poor run of a recurrent model that scales its raw inputs itself: the outputs of its first layer are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, log
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence, Severity
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.inputs import InputScale, input_scale
from lossdoctor.derive.level import Level, expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.strength import ramp, settled, slope

# Root mean square of the largest feature. Starting values: standardised inputs 1 to 3, pixels of 0 to 255 about 130 and more.
USUAL, FAR = 5.0, 40.0
# Largest feature over the middle one, where units are mixed. Starting values: images and standardised tables up to 5.
ALIKE, MIXED = 30.0, 300.0
# First loss over the level of a sound start. Starting values; healthy .98 to 1.3 and oddly up to 3.3, raw pixels 3 to 180.
SOUND_START, BAD_START = 1.5, 4.0
# Standard deviation of the first layer's outputs. Starting values: sound 0.3 to 2; it follows the inputs' scale.
SMALL_OUTPUT, LARGE_OUTPUT = 3.0, 15.0
SATURATED = 0.5  # share of the first layer's units at their ends (field guide, row 29)
LEARNS, POOR = 0.1, 0.4  # loss at the end over guessing, as in the rules of the rate
LITTLE, MOST = 0.3, 0.7  # share of a bad first loss, on a logarithmic scale, that standardised inputs take away (starting values)
CONSEQUENCE = 0.5  # of a bad start or a poor run; below it there is nothing to warn of
NORMS = ("Norm",)  # BatchNorm2d, LayerNorm, GroupNorm, InstanceNorm1d, RMSNorm ...


def detect(training: Training) -> Detection | None:
    """Weigh how far the raw inputs are from unit scale, and what came of it."""
    scale = input_scale(training.table("batch"))
    if scale is None or scale.sentinel:
        return None
    far = max(ramp(scale.largest, USUAL, FAR), ramp(scale.uneven, ALIKE, MIXED) if scale.largest > 1 else 0.0)
    level = expected_level(training)
    start = _bad_start(training, level)
    if far <= 0 or (_normalised(training) and not start):
        return None
    output, known = _first_output(training)
    if known and not output and not start:
        return None  # the model scales for itself
    suffers = max(start, _suffers(training, level) if output or not known else 0.0)
    proof, shown = _cured(training)
    strength = settled(far * (0.5 + 0.5 * max(suffers, output)), proof)
    severity: Severity | None = None if suffers >= CONSEQUENCE else "advice"
    return Detection(strength, (*_evidence(training, scale, level), *shown), _advice(scale), training.where("forward"), severity)


def _cured(training: Training) -> tuple[float | None, tuple[Evidence, ...]]:
    """Return how much of a bad first loss one forward with standardised inputs took away, where that was tried."""
    if not training.has("standardise"):
        return None, ()
    facts = training.experiment("standardise")
    first, changed, guess = (float(facts.get(name) or 0.0) for name in ("first", "standardised", "guess"))
    if not (guess > 0 and changed > 0 and SOUND_START * guess < first < inf):
        return None, ()
    taken = log(first / changed) / log(first / guess)
    seen = f"{first:.4g} as it was, {changed:.4g} with standardised inputs"
    return slope(taken, LITTLE, MOST), (Evidence("standardise", (0, 0), seen, f"no difference ({guess:.4g} is guessing)"),)


def _bad_start(training: Training, level: Level | None) -> float:
    loss = training.signals.get("loss", Series.of([])).finite()
    if level is None or not len(loss) or level.highest <= 0 or training.phase_of is not None:
        return 0.0
    return ramp(loss.first / level.highest, SOUND_START, BAD_START)


def _normalised(training: Training) -> bool:
    """Tell whether a normalisation layer is the first or follows the first at once."""
    layers = (training.fact("model") or {}).get("layers") or []
    return any(norm in str(layer.get("kind")) for layer in layers[:2] for norm in NORMS)


def _first_output(training: Training) -> tuple[float, bool]:
    """Return how clearly the first layer's outputs are too large or saturated, and whether they were seen."""
    rows = sorted(training.rows.get("activations", []), key=lambda row: row.step)[:1]
    seen = rows[0].get("layers") if rows else None
    layers = (training.fact("model") or {}).get("layers") or []
    if not seen or not layers or seen[0].get("name") != layers[0].get("name"):
        return 0.0, False
    outputs = seen[:2]
    spread = max((float(each.get("std") or 0.0) for each in outputs[:1]), default=0.0)
    ends = max((float(each.get("saturated") or 0.0) for each in outputs), default=0.0)
    return max(ramp(spread, SMALL_OUTPUT, LARGE_OUTPUT), slope(ends, SATURATED / 2, SATURATED)), True


def _suffers(training: Training, level: Level | None) -> float:
    """Return how clearly the run stayed poor, or broke."""
    seen = outcome(training.signals.get("loss", Series.of([])), level.guess if level else None)
    if seen is None or training.roles or seen.level is None:
        return 0.0
    return 0.8 * (1.0 if seen.not_finite or seen.lost else slope(seen.level, LEARNS, POOR))


def _evidence(training: Training, scale: InputScale, level: Level | None) -> tuple[Evidence, ...]:
    shape = " x ".join(str(size) for size in scale.shape)
    features = f"features up to {scale.largest:.3g} (root mean square), the middle one {scale.typical:.3g}"
    size = f"{features}; values {scale.low:.3g} to {scale.high:.3g}"
    found = [Evidence("batch", scale.steps, size, "about 1 for each feature", f"raw inputs of shape {shape}, measured before the model")]
    loss = training.signals.get("loss", Series.of([])).finite()
    if level is not None and len(loss):
        found.append(Evidence("loss", (0, 0), f"{loss.first:.4g} at the first step", f"about {level.highest:.4g}"))
    rows = training.rows.get("activations", [])
    if rows and rows[0].get("layers"):
        layer, step = rows[0]["layers"][0], rows[0].step
        if layer.get("std") is not None:
            found.append(Evidence("activations", (step, step), f"{layer.get('name')}: spread {float(layer['std']):.3g}", "0.3 to 2"))
    return tuple(found)


def _advice(scale: InputScale) -> str:
    each = "each feature" if scale.uneven > ALIKE or len(scale.shape) == 2 else "each channel"
    return f"Standardise the inputs: subtract the mean and divide by the standard deviation of {each} of the training data."


def _run(
    size: float | Sequence[float],
    first: float = 2.3,
    end: float = 0.05,
    layers: Sequence[str] = ("Linear", "Linear"),
    output: float | None = None,
    standardised: float = 0.0,
    **more: Any,
) -> Training:
    """Build a training whose features have the given sizes, whose loss goes from `first` to `end`, with ten balanced classes."""
    sizes = [size, size] if isinstance(size, int | float) else list(size)
    fields = {"shape": [32, len(sizes)], "integer": False, "mean": max(sizes) / 2, "std": max(sizes) / 2, "min": 0.0, "max": max(sizes)}
    fields |= {"feature_means": [0.8 * each for each in sizes], "feature_stds": [0.6 * each for each in sizes], **more}
    call = {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3}
    rows = {"batch": [Row(0, {"inputs": [fields]})], "loss_call": [Row(0, call)]}
    if output is not None:
        rows["activations"] = [Row(0, {"layers": [{"name": "0", "kind": "linear", "std": output, "saturated": None}]})]
    loss = Series.of([first, *[end + (2.3 - end) * 0.7**i for i in range(60)]])
    facts = {"model": {"layers": [{"name": str(i), "kind": kind} for i, kind in enumerate(layers)]}}
    cured = Experiment("standardise", "done", 0.1, {"first": first, "guess": 2.3, "standardised": standardised})
    return Training(signals={"loss": loss}, rows=rows, facts=facts, experiments={"standardise": cured} if standardised else {})


def _unscaled(kinds: tuple[str, ...], *also: tuple[str, str, str]) -> Iterator[Plant]:
    """Build the plants of a kind of recipe: the data as they were loaded, as pixels of 0 to 255, in a unit far too small."""
    scaled = r"^x_train, x_test = \(x_train - mean\) / std, \(x_test - mean\) / std$"
    yield Plant("mild", "data", scaled, "pass", kinds, also)
    yield Plant("middle", "data", scaled, "x_train, x_test = 16 * x_train, 16 * x_test", kinds, also)
    yield Plant("severe", "data", scaled, "x_train, x_test = 250 * x_train, 250 * x_test", kinds, also)


# Normalisation layers take the scale out again, so they go with it; one edit each for the layers that they follow.
_NORMS = tuple(("model", rf"^( +nn\.Conv2d\({width}, WIDTH, .*\n) +nn\.BatchNorm2d\(WIDTH\),\n", r"\1") for width in ("1", "WIDTH"))

FAULT = Fault(
    code="DAT001",
    slug="inputs-unscaled",
    title="Inputs are not scaled",
    detect=detect,
    needs=("loss", "batch"),
    fix="Standardise the inputs with the mean and standard deviation of the training data.",
    severity="warning",
    explains=(
        "lr-too-high",
        "loss-not-finite",
        "init-scale-wrong",
        "saturated-units",
        "dead-units",
        "exploding-gradients",
        "loss-spike",
        "loss-flat",
        "loss-diverged",
        "loss-noisy",
        "underfitting",
    ),
    examples=(
        Example("sick", _run(208.0, first=21.0, output=90.0), "pixels of 0 to 255: the first loss shows it"),
        Example("sick", _run([2000.0, 300.0, 0.01, 5.0], first=9e3), "mixed units"),
        Example("sick", _run(150.0, end=1.9, layers=("GRU", "Linear")), "a recurrent net that learns little"),
        Example(
            "sick", _run(20.0, first=5.0, output=8.0, standardised=2.4), "a sixteenth of that; standardised inputs cure the first loss"
        ),
        Example("healthy", _run(1.0, output=0.6), "standardised"),
        Example("healthy", _run([1.5, 0.02, 0.9, 0.4], output=0.5), "images in 0 to 1 with rare pixels"),
        Example("look-alike", _run(208.0, layers=("BatchNorm1d", "Linear"), output=0.9), "normalised by the first layer"),
        Example("look-alike", _run(208.0, layers=("Conv2d", "BatchNorm2d"), output=90.0), "normalised after the first layer"),
        Example("look-alike", _run(208.0, output=0.6), "the model divides by 255 itself"),
        Example("look-alike", _run(208.0, end=2.3, output=0.6), "scaled by itself, and nothing learnt for another reason"),
        Example("look-alike", _run(1.0, first=60.0, output=0.6), "a bad start with sound inputs"),
        Example("look-alike", _run(20.0, first=9.0, output=8.0, standardised=8.0), "standardised inputs do not cure the first loss"),
        Example("look-alike", _run(5000.0, integer=True), "token numbers"),
        Example("look-alike", _run(9000.0, first=80.0, sentinel_share=0.01), "a sentinel value, not the unit"),
        Example("known miss", _run(13.0, first=2.9, output=5.0), "pixels of 0 to 16: little comes of it"),
    ),
    plants=(*_unscaled(("batchnorm",), *_NORMS), *_unscaled(("scaled",))),
    treatment=Treatment("standardise_inputs", {}, moves="loss", direction="down"),
    bigger_machine=BiggerMachine("no", "the numbers are wrong on any machine"),
    decides_with=("standardise",),
)
