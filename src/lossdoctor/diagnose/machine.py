"""Would a bigger machine help? The answer for a run, with the conditions that must all hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import HEALTHY, BiggerMachine, Diagnosis
from lossdoctor.core.run import Training
from lossdoctor.diagnose.vitals import waiting

UNKNOWN = "unknown"
# Healthy loops of a busy machine wait up to 0.48 of their time by the wall clock, slow loading 0.70 or more (field guide).
SMALL_WAIT = 0.3
# Sixteen examples are memorised below this share of what guessing gives by a model that can learn (field guide: at most .0095;
# too small .41 up).
MEMORISED = 0.1
# Half of a step's time goes by the row, or more: below, the processor is mostly busy with starting operations.
MOST_FIXED = 0.5

Conditions = list[dict[str, Any]]


def answer(diagnosis: Diagnosis, training: Training | None) -> tuple[BiggerMachine, Conditions]:
    """Return the answer for a run and its conditions, each `{"name", "met", "seen"}` with `met` true, false or "unknown".

    Args:
        diagnosis: with its findings arranged and its verdict set.
        training: the main training, or None where nothing was trained.
    """
    conditions = _conditions(training or Training())
    causes = [f for f in diagnosis.present if f.severity != "advice" and f.explained_by is None]
    against = next((f for f in causes if f.bigger_machine.helps == "no"), None)
    if against is not None:
        return BiggerMachine("no", against.bigger_machine.why or f"{against.title}: mend that first, on any machine"), conditions
    decided = _by_conditions(diagnosis, conditions)
    if decided is not None:
        return decided, conditions
    told = next((f for f in (*causes, *diagnosis.present) if f.bigger_machine.helps in ("yes", "speed-only")), None)
    if told is not None:
        return told.bigger_machine, conditions
    if diagnosis.verdict == HEALTHY:
        return BiggerMachine("speed-only", "it learns as it is; a bigger machine would only be quicker"), conditions
    return BiggerMachine(UNKNOWN, "the cause of the failure is open; settle it first"), conditions


def _by_conditions(diagnosis: Diagnosis, conditions: Conditions) -> BiggerMachine | None:
    """Decide by the conditions; None where the one that decides was not measured."""
    met = {each["name"]: each["met"] for each in conditions}
    seen = {each["name"]: each["seen"] for each in conditions}
    for name, why in _AGAINST.items():
        if met[name] is False and (name != "validation improves" or met["memory ran out"] is not True):
            return BiggerMachine("no", f"{why} ({seen[name]})")
    if met["memory ran out"] is True:
        return BiggerMachine("yes", f"memory is what is missing, after the cheaper fixes ({seen['memory ran out']})")
    if met["device is busy"] is not True:
        return None
    falling = diagnosis.finding("too-few-epochs")
    if falling is not None and falling.status == "present":
        return BiggerMachine("yes", f"the device is the limit ({seen['device is busy']}), and the run would get further in the same time")
    return BiggerMachine("speed-only", f"the device is the limit ({seen['device is busy']}); the result would be the same, sooner")


# In this order: what is nearer to the cause is told first.
_AGAINST = {
    "memorises a batch": "the model does not memorise sixteen examples; it would not on any machine",
    "waiting for data is small": "the run waits for data, and would on any machine",
    "validation improves": "the validation does not improve; the same would come out sooner",
    "device is busy": "the device is hardly busy; larger batches or fewer operations come first",
}


def _conditions(training: Training) -> Conditions:
    return [
        _condition("memorises a batch", *_memorises(training)),
        _condition("validation improves", *_improves(training)),
        _condition("waiting for data is small", *_waits(training)),
        _condition("device is busy", *_busy(training)),
        _condition("memory ran out", *_memory(training)),
    ]


def _condition(name: str, met: bool | str, seen: str) -> dict[str, Any]:
    return {"name": name, "met": met, "seen": seen}


def _memorises(training: Training) -> tuple[bool | str, str]:
    if not training.has("memorise"):
        return UNKNOWN, "not tried"
    facts = training.experiment("memorise")
    known = [float(facts[name]) for name in ("own", "fresh_median") if isinstance(facts.get(name), int | float)]
    if not known:
        return UNKNOWN, "not told"
    return min(known) < MEMORISED, f"sixteen examples down to {min(known):.2g} of the loss when guessing"


def _improves(training: Training) -> tuple[bool | str, str]:
    losses = [row.get("loss") for row in training.rows.get("validation", [])]
    known = np.array([loss for loss in losses if loss is not None], dtype=np.float64)
    if len(known) < 2 or not np.isfinite(known).all():
        return UNKNOWN, "fewer than two validation passes with a known loss"
    best = int(known.argmin())
    return best > 0, f"best loss {known[best]:.3g} in pass {best + 1} of {len(known)}, {known[0]:.3g} in the first"


def _waits(training: Training) -> tuple[bool | str, str]:
    wait = waiting(training)
    return (UNKNOWN, "not measured") if wait is None else (wait.share < SMALL_WAIT, f"{wait.share:.0%} of the time")


def _busy(training: Training) -> tuple[bool | str, str]:
    """Tell whether most of a step's compute goes by the row; where a batch cannot be enlarged, whether launching leaves room for it."""
    if not training.has("throughput"):
        return UNKNOWN, "not measured"
    facts = training.experiment("throughput")
    fixed = facts.get("fixed_share")
    if isinstance(fixed, int | float):
        return fixed < MOST_FIXED, f"{fixed:.0%} of a step's compute is fixed cost, whatever the rows"
    launching = facts.get("operations", 0) * (facts.get("peaks") or {}).get("launch_seconds", 0.0) / max(facts.get("seconds", 0.0), 1e-9)
    return launching < MOST_FIXED, f"starting operations takes {launching:.0%} of a step's compute"


def _memory(training: Training) -> tuple[bool | str, str]:
    ended = training.run_facts.get("ended") or {}
    if ended.get("exception") == "OutOfMemoryError":
        return True, "the run ended with OutOfMemoryError"
    return (False, "the run ended otherwise") if ended else (UNKNOWN, "the run has not ended")
