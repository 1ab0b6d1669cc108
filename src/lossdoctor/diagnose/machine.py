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
# Sixteen examples are memorised below this loss by a model that can learn (field guide: at most .0095; too small .41 up).
MEMORISED = 0.1


def answer(diagnosis: Diagnosis, training: Training | None) -> tuple[BiggerMachine, list[dict[str, Any]]]:
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
    told = next((f for f in (*causes, *diagnosis.present) if f.bigger_machine.helps in ("yes", "speed-only")), None)
    if told is not None:
        return told.bigger_machine, conditions
    if diagnosis.verdict == HEALTHY:
        return BiggerMachine("speed-only", "it learns as it is; a bigger machine would only be quicker"), conditions
    return BiggerMachine(UNKNOWN, "the cause of the failure is open; settle it first"), conditions


def _conditions(training: Training) -> list[dict[str, Any]]:
    return [
        _condition("memorises a batch", *_memorises(training)),
        _condition("validation improves", *_improves(training)),
        _condition("waiting for data is small", *_waits(training)),
        _condition("device is busy", UNKNOWN, "not measured"),
        _condition("memory ran out", *_memory(training)),
    ]


def _condition(name: str, met: bool | str, seen: str) -> dict[str, Any]:
    return {"name": name, "met": met, "seen": seen}


def _memorises(training: Training) -> tuple[bool | str, str]:
    if not training.has("memorise"):
        return UNKNOWN, "not tried"
    final = training.experiment("memorise").get("final_loss")
    return (UNKNOWN, "not told") if final is None else (bool(final < MEMORISED), f"final loss {final:.3g}")


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


def _memory(training: Training) -> tuple[bool | str, str]:
    ended = training.run_facts.get("ended") or {}
    if ended.get("exception") == "OutOfMemoryError":
        return True, "the run ended with OutOfMemoryError"
    return (False, "the run ended otherwise") if ended else (UNKNOWN, "the run has not ended")
