"""Reading values in the loop stalls the device.

What you see
------------
An accelerator that is busy for a part of the time only, although data are there at once; a line with `.item()` takes long.

Why it happens
--------------
The host starts operations and runs ahead of the device. `.item()`, `.cpu()`, printing a tensor, `if loss > 1`, masks and `nonzero` need
a value that the device has not computed yet: the host waits, and afterwards the device waits for the host to start more.

How it is told apart
--------------------
`lossdoctor speed` notes at which lines of the script the host waits for the device, how often, and for how long. Without the waits a
step takes as long as the host or the device needs, whichever is longer: where the device is at work all the time, nothing is gained, and
nothing is said.

What to do
----------
Add up losses on the device, with `.detach()`, and read them once in many steps; print rarely; `torch.where` in place of masks;
`non_blocking=True` for copies from pinned memory.

When this is wrong
------------------
On a processor reading a value costs nothing, and nothing is said. What the device takes of a step is told by a step that is done again by
itself; where that was not done, the host alone is counted and the gain is a limit.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Location, Series, Training
from lossdoctor.derive.strength import slope
from lossdoctor.derive.timeline import without_waits

LITTLE, WORTH = 0.02, 0.06  # share of a step that would be saved: timing alone differs by as much; starting values
MOST_NAMED = 3
Wait = tuple[str, int, float, float]  # file, line, times a step, seconds a step


def detect(training: Training) -> Detection | None:
    """Work out what a step would take without the waits."""
    facts = training.run_facts
    waits, wall = _waits(facts.get("waits")), training.signals.get("wall", Series.of([])).finite()
    if waits is None or len(wall) < 3:
        raise SignalMissing("waits")
    if str(facts.get("device", "cpu")).startswith("cpu") or not waits:
        return None
    step = float(np.median(np.diff(wall.values)))
    waited, busy = sum(wait[3] for wait in waits), _busy(training)
    if not step > 0:
        return None
    gain = 1 - without_waits(step, min(waited, step), busy) / step
    strength = slope(gain, LITTLE, WORTH)
    if not strength > 0:
        return None
    return Detection(strength, _evidence(waits, step, waited, busy), _fix(waits), Location(*waits[0][:2]), gain={"time": gain})


def _waits(told: object) -> list[Wait] | None:
    """Return the waits that were timed, the longest first; None where none were timed."""
    if not isinstance(told, list):
        return None
    timed = [each for each in told if isinstance(each, list | tuple) and len(each) == 4]
    known = [(str(each[0]), int(each[1]), float(each[2]), float(each[3])) for each in timed if each[3] is not None]
    if told and not known:
        return None
    return sorted((each for each in known if each[3] >= 0), key=lambda each: -each[3])


def _busy(training: Training) -> float | None:
    """Return what the device takes of a step: as told, or by a step that was done again there."""
    told = training.run_facts.get("device_seconds")
    if isinstance(told, int | float):
        return float(told)
    facts = training.found("throughput")
    again = facts.get("seconds")
    return float(again) if isinstance(again, int | float) and not str(facts.get("device", "cpu")).startswith("cpu") else None


def _evidence(waits: list[Wait], step: float, waited: float, busy: float | None) -> tuple[Evidence, ...]:
    seen = f"the host waits {1e3 * waited:.3g} of the {1e3 * step:.3g} ms of a step"
    note = "" if busy is None else f"the device is at work for {1e3 * busy:.3g} ms of it"
    lines = [
        Evidence("waits", (0, 0), f"{file.rsplit('/', 1)[-1]}:{line} {times:g} times a step, {1e3 * seconds:.3g} ms", "no value is read")
        for file, line, times, seconds in waits[:MOST_NAMED]
    ]
    return (Evidence("waits", (0, 0), seen, "the host runs ahead of the device", note), *lines)


def _fix(waits: list[Wait]) -> str:
    lines = ", ".join(f"{file.rsplit('/', 1)[-1]}:{line}" for file, line, _, _ in waits[:MOST_NAMED])
    return f"Read no value at {lines} in every step: add up on the device with .detach(), and read now and then."


def _run(waited: float, busy: float | None, device: str = "cuda:0", step: float = 0.01) -> Training:
    facts = {"device": device, "waits": [["train.py", 31, 1.0, waited]], "device_seconds": busy}
    return Training(signals={"wall": Series.of([step * i for i in range(20)])}, run_facts=facts)


def _again(waited: float, again: float) -> Training:
    made = _run(waited, None)
    made.experiments["throughput"] = Experiment("throughput", "done", 1.0, {"seconds": again, "device": "cuda:0"})
    return made


FAULT = Fault(
    code="PRF001",
    slug="host-sync",
    title="Reading values in the loop stalls the device",
    detect=detect,
    needs=(),
    fix="Read values once in many steps; add up on the device meanwhile.",
    severity="advice",
    bigger_machine=BiggerMachine("no", "a faster device would stand still for longer"),
    examples=(
        Example("sick", _run(0.006, 0.005), "half of the step is lost"),
        Example("sick", _again(0.004, 0.006), "the step by itself is shorter"),
        Example("sick", _run(0.003, None), "what the device takes is not known"),
        Example("healthy", _run(0.0, 0.009), "nothing is waited for"),
        Example("healthy", _run(0.006, 0.005, "cpu"), "a processor has nothing to wait for"),
        Example("look-alike", _run(0.006, 0.0099), "the device is at work all the time: the host would wait elsewhere"),
        Example("look-alike", _run(0.0001, 0.005), "one value that is there already"),
    ),
)
