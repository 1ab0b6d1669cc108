"""Weights, gradients, optimiser state and activations exceed the device.

What you see
------------
"out of memory" in the first steps, or at the first long batch, or the system kills the process without a word.

Why it happens
--------------
Adam keeps two numbers for each weight, and every layer keeps what its backward needs, row by row. The batch, the length of its sequences
and the width of the model decide together.

How it is told apart
--------------------
The run ended for want of memory; or it was killed while it held most of the machine's memory; or, before the run, the budget of one
captured step is more than what is free. Where graphs are kept from step to step that is the cause, and this its symptom.

What to do
----------
The cheaper fixes first: smaller micro-batches with accumulation, bfloat16, checkpointing of blocks, 8-bit optimiser state, shorter
sequences, adapters. `lossdoctor machine` computes what each would save, and the largest batch that fits.

When this is wrong
------------------
Another process may hold the memory. A process that is killed from outside, by a person or a batch queue, is not counted unless
memory was nearly full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Series, Training
from lossdoctor.derive.strength import slope

ENDED = ("OutOfMemoryError", "MemoryError")
RAN_OUT = 0.95  # strength of an error that says so
ROOMY, FULL = 0.5, 0.85  # share of the machine's memory that the process held when it was killed; starting values
FITS, EXCEEDS = 0.9, 1.05  # the budget of a step over what is free: computed to 5 %


def detect(training: Training) -> Detection | None:
    """See how the run ended, or what a step would need."""
    ended = training.run_facts.get("ended") or {}
    if ended.get("exception") in ENDED:
        steps = max(0, training.steps - 1)
        evidence = Evidence("memory", (steps, steps), f"the run ended with {ended['exception']}", "enough memory")
        return Detection(RAN_OUT, (evidence,), _cheapest(training))
    if ended.get("how") == "killed":
        return _killed(training)
    if "memory" in training.experiments:
        return _budget(training)
    if not ended:
        raise SignalMissing("memory")
    return None


def _killed(training: Training) -> Detection | None:
    held, limit = training.signals.get("memory", Series.of([])).finite(), training.run_facts.get("memory_bytes")
    if not len(held) or not isinstance(limit, int | float) or not limit > 0:
        return None
    share = held.last / limit
    seen = f"{held.last / 1e9:.3g} of {limit / 1e9:.3g} GB when it was killed"
    evidence = Evidence("memory", (int(held.steps[0]), int(held.steps[-1])), seen, f"below {ROOMY:.0%}")
    strength = slope(share, ROOMY, FULL)
    return Detection(strength, (evidence,)) if strength > 0 else None


def _budget(training: Training) -> Detection | None:
    if training.experiments["memory"].status != "done":
        return None
    facts = training.experiment("memory")
    parts = [facts.get(name) for name in ("weights", "optimizer_state", "peak")]
    free = facts.get("available")
    if not all(isinstance(each, int | float) for each in (*parts, free)) or not free:
        return None
    need = sum(float(each) for each in parts if each is not None)
    seen = f"a step of {facts.get('rows')} rows needs {need / 1e9:.3g} GB, {free / 1e9:.3g} GB are free"
    strength = slope(need / free, FITS, EXCEEDS)
    return Detection(strength, (Evidence("memory", (0, 0), seen, "less than is free"),), _cheapest(training)) if strength > 0 else None


def _cheapest(training: Training) -> str:
    """Name the cheaper fixes that would save most, where they were computed."""
    fixes: Mapping[str, Any] = training.found("memory").get("fixes") or {}
    known = sorted(((float(size), name) for name, size in fixes.items() if isinstance(size, int | float)), reverse=True)[:3]
    listed = ", ".join(f"{name} ({size / 1e9:.3g} GB)" for size, name in known if size > 0)
    return f"What would save most (computed): {listed}." if listed else ""


def _ended(held: float = 1e9, **ended: object) -> Training:
    signals = {"memory": Series.of([held / 2, held]), "loss": Series.of([1.0, 0.9])}
    return Training(signals=signals, run_facts={"ended": ended, "memory_bytes": 16e9})


def _needs(size: float) -> Training:
    facts = {"rows": 64, "weights": size / 4, "optimizer_state": size / 2, "peak": size / 4, "available": 8e9}
    return Training(experiments={"memory": Experiment("memory", "done", 1.0, {**facts, "fixes": {"8-bit optimiser state": size / 3}})})


FAULT = Fault(
    code="MEM003",
    slug="does-not-fit",
    title="Weights, gradients, optimiser state and activations exceed the device",
    detect=detect,
    needs=(),
    fix="Smaller micro-batches with accumulation, bfloat16, checkpointing, or 8-bit optimiser state; then a device with more memory.",
    severity="error",
    bigger_machine=BiggerMachine("yes", "memory is what is missing, after the cheaper fixes"),
    examples=(
        Example("sick", _ended(how="exception", exception="OutOfMemoryError"), "the device says so"),
        Example("sick", _ended(15e9, how="killed", exception=None), "killed with memory full"),
        Example("sick", _needs(12e9), "a step needs more than is free"),
        Example("healthy", _ended(how="returned", exception=None), "ended as it should"),
        Example("healthy", _needs(1e9), "fits easily"),
        Example("look-alike", _ended(2e9, how="killed", exception=None), "killed from outside"),
        Example("look-alike", _ended(how="exception", exception="RuntimeError"), "another error"),
    ),
)
