"""The same step gives another result: the device, or the library that computes on it, is in error.

What you see
------------
Nothing that a script could explain: a loss that differs from machine to machine beyond rounding, NaN out of healthy figures, a run that
cannot be repeated, a model that learns on one device and not on the other.

Why it happens
--------------
A defective device or memory, an overclocked one, a driver or a library with a defect for one shape or precision. Such errors are silent:
no exception tells of them.

How it is told apart
--------------------
Each layer of the model computes its outputs and gradients on what it was really given, twice alike and once in float64 on the processor.
How far a sound layer may be off is measured as well, by moving inputs and weights by their rounding: a layer that is ill conditioned, or
that runs in half precision, has a wide bound of its own. A fault is an error of per cents that rounding does not explain by far, or a
layer without random numbers that gives two results.

What to do
----------
Run the same check on another machine. Where only this one errs, test its memory and device; else switch the library's kernels off
(`torch.backends.mkldnn.flags(enabled=False)`, `torch.backends.cudnn.enabled = False`), update torch or the driver, and report the layer.

When this is wrong
------------------
One check asks each layer a few times: a device that errs once in a million operations passes it. On a single processor the float64
reference comes from the same hardware; an error that hits both alike stays hidden, and layers that a script writes itself are not asked.
A layer whose class was changed by another library so that it draws random numbers looks unrepeatable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import ramp

# Error over what rounding explains: .1 to 12 for sound layers of 34 scripts, dense, convolutional, recurrent and of norms (measured).
EXPLAINED, BEYOND = 100.0, 1000.0
RELATIVE, CLEAR = 3e-3, 1e-2  # the field guide, row 72: above 1e-2 (TF32 on a device gives up to 1e-3, which is a setting)


def detect(training: Training) -> Detection | None:
    """Find the layer that is farthest beyond what rounding explains."""
    facts = training.experiment("backend")
    layers = [each for each in facts.get("layers") or () if isinstance(each, Mapping)]
    judged = [(max(_wrong(each), _unsteady(each)), each) for each in layers]
    strength, worst = max(judged, key=lambda pair: pair[0], default=(0.0, {}))
    if not strength > 0:
        return None
    name = f"{worst.get('kind')} {worst.get('name')} in {worst.get('dtype')} on {facts.get('device')}"
    return Detection(0.95 * strength, (_evidence(worst, name),))


def _wrong(layer: Mapping[str, Any]) -> float:
    error, sound = _number(layer.get("error")), _number(layer.get("sound"))
    return ramp(error, RELATIVE, CLEAR) * ramp(error / max(sound, 1e-12), EXPLAINED, BEYOND)


def _unsteady(layer: Mapping[str, Any]) -> float:
    apart, sound = _number(layer.get("apart")), _number(layer.get("sound"))
    return ramp(apart, RELATIVE, CLEAR) * ramp(apart / max(sound, 1e-12), EXPLAINED, BEYOND)


def _number(value: Any) -> float:
    """Read a figure; what is no number tells nothing, and what overflowed is another fault's matter."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _evidence(layer: Mapping[str, Any], name: str) -> Evidence:
    sound = f"about {_number(layer.get('sound')):.1e}"
    if _unsteady(layer) > _wrong(layer):
        return Evidence("backend", (0, 0), f"{_number(layer['apart']):.1e} apart", sound, f"{name}, the same operation twice")
    return Evidence("backend", (0, 0), f"{_number(layer['error']):.1e} off", sound, f"{name}, beside float64 on the processor")


def _run(error: float, sound: float = 3e-7, apart: float = 0.0, kind: str = "Linear", dtype: str = "float32") -> Training:
    good = {"name": "0", "kind": "Conv2d", "dtype": "float32", "error": 2e-7, "sound": 1e-7, "apart": 0.0}
    asked = {"name": "2", "kind": kind, "dtype": dtype, "error": error, "sound": sound, "apart": apart}
    facts = {"layers": [good, asked], "left": 0, "step": apart, "device": "cpu", "second": False}
    return Training(signals={"loss": Series.of([2.3, 2.2])}, experiments={"backend": Experiment("backend", "done", 0.4, facts)})


FAULT = Fault(
    code="NUM005",
    slug="hardware-or-backend-error",
    title="The same step gives another result",
    detect=detect,
    needs=("backend",),
    fix="Run the check on another machine; switch the library's kernels off, update torch or the driver, test the device.",
    severity="error",
    explains=("loss-not-finite", "loss-diverged", "loss-noisy", "loss-flat", "loss-spike"),
    examples=(
        Example("sick", _run(0.02), "a matrix product is two per cent off"),
        Example("sick", _run(0.3, apart=0.3), "a layer that gives another result each time"),
        Example("healthy", _run(2e-6), "rounding of many terms"),
        Example("healthy", _run(4e-3, sound=4e-3, dtype="bfloat16"), "a layer in half precision"),
        Example("look-alike", _run(0.05, sound=0.02, kind="BatchNorm1d"), "a norm of inputs that hardly vary: ill conditioned"),
        Example("look-alike", _run(8e-4, sound=3e-7), "matrix units of ten bits, a setting"),
        Example("known miss", _run(1e-3, sound=3e-7), "a kernel that is a thousandth off"),
    ),
    decides_with=("backend",),
)
