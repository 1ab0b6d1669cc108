"""What each device of a table could give a run at most: the figures of `lossdoctor machine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Diagnosis
from lossdoctor.core.run import Run, Training
from lossdoctor.diagnose.across import main_training
from lossdoctor.diagnose.vitals import waiting
from lossdoctor.machine.devices import devices
from lossdoctor.machine.roofline import Gain, gain, least_seconds

_ALIKE = 0.95
WORTH = 1.2  # times as fast: less is lost in the move to another machine; a starting value


def decide(run: Run, diagnosis: Diagnosis, added: Mapping[str, Mapping[str, Any]]) -> Diagnosis:
    """Add to a diagnosis what the devices could give, and let the answer heed it.

    Args:
        added: the user's devices, by name.
    """
    training = main_training(run.trainings)
    table = devices(added)
    if training is None or not training.has("throughput"):
        return diagnosis
    facts = training.experiment("throughput")
    kinds = [(int(count), float(flops), float(size)) for count, flops, size in facts["kinds"]]
    other = _other_seconds(training)
    gains = sorted(
        (gain(device, kinds, facts["seconds"], other) for device in table), key=lambda each: (-each.factor, each.device.memory_gb)
    )
    diagnosis.vitals["machine"] = {**_here(facts, kinds, other), "devices": [_row(each, training) for each in gains]}
    diagnosis.bigger_machine = _with_factor(diagnosis.bigger_machine, gains)
    return diagnosis


def _other_seconds(training: Training) -> float:
    """Return what a step takes beside its compute: waiting, and the script between steps."""
    wait = waiting(training)
    gaps = training.signals.get("gap_seconds")
    gap = float(gaps.finite().values[1:].mean()) if gaps is not None and len(gaps.finite()) > 1 else 0.0
    return max(gap, wait.wait_seconds if wait else 0.0)


def _here(facts: Mapping[str, Any], kinds: list[tuple[int, float, float]], other: float) -> dict[str, Any]:
    """Return what a step does on this device, and how near it comes to the device's roof."""
    peaks, seconds = facts["peaks"], facts["seconds"]
    roof = least_seconds(kinds, peaks["flops"], peaks["bandwidth"], peaks["launch_seconds"])
    return {
        "device": facts["device"],
        "compute_seconds": seconds,
        "other_seconds": other,
        "flops": facts["flops"],
        "bytes": facts["bytes"],
        "operations": facts["operations"],
        "intensity": facts["flops"] / facts["bytes"] if facts["bytes"] else 0.0,
        "rate": facts["flops"] / seconds,
        "peak_rate": peaks["flops"],
        "peak_bandwidth": peaks["bandwidth"],
        "of_roof": min(1.0, roof.seconds / seconds),
        "bound": roof.bound,
        "measured": facts.get("devices") or {},
    }


def _row(each: Gain, training: Training) -> dict[str, Any]:
    device = each.device
    row: dict[str, Any] = {
        "name": device.name,
        "factor": round(each.factor, 2),
        "half_factor": each.half_factor and round(each.half_factor, 2),
    }
    row |= {"bound": each.bound, "step_seconds": each.seconds, "memory_gb": device.memory_gb, "source": device.source}
    seconds = training.steps * each.seconds
    row["run_seconds"] = seconds
    if device.price_per_hour is not None:
        row["price"] = round(seconds / 3600 * device.price_per_hour, 4)
    return row


def _with_factor(answer: BiggerMachine, gains: list[Gain]) -> BiggerMachine:
    """Say how much faster at most; where even the best device gives hardly anything, the answer is no."""
    if answer.helps not in ("yes", "speed-only") or not gains:
        return answer
    alike = [each for each in gains if each.factor > _ALIKE * gains[0].factor]
    best = min(alike, key=lambda each: each.device.memory_gb)  # of those that give about the same the smallest
    if best.factor < WORTH:
        return BiggerMachine("no", f"even {best.device.name} would be at most {best.factor:.2g} times as fast")
    return BiggerMachine(answer.helps, f"{answer.why}; at most {best.factor:.2g} times as fast on {best.device.name}")
