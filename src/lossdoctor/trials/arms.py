"""One arm of a trial: the script again, with or without a treatment, as a run to compare."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossdoctor.core.run import Run, Training
from lossdoctor.core.store import load_run
from lossdoctor.launch.ask import Ask
from lossdoctor.launch.child import Repetition, repeat


@dataclass(frozen=True)
class Arm:
    """Hold one repetition, or the watched run itself.

    Args:
        run: what was recorded; None where nothing was.
        index: of the training that is looked at.
        seconds: what it took.
        reason: why nothing was recorded, or the record is short; empty where it is whole.
        cut: whether the time was up before all steps were taken.

    Example:
        >>> Arm(None, 0, 1.5, "it recorded nothing").training is None
        True
    """

    run: Run | None
    index: int
    seconds: float = 0.0
    reason: str = ""
    cut: bool = False

    @property
    def training(self) -> Training | None:
        """The training that is looked at; None where the repetition did not reach it."""
        trainings = self.run.trainings if self.run is not None else []
        return trainings[self.index] if self.index < len(trainings) else None

    @property
    def treated(self) -> frozenset[str]:
        """The treatments that found something to change."""
        return frozenset(self.run.facts.get("treated", ()) if self.run is not None else ())


@dataclass(frozen=True)
class Plan:
    """Hold how a run is repeated.

    Args:
        folder: of the watched run.
        index: of the training that is looked at.
        steps: of it that are compared.
        before: steps of the trainings before it.
        until: when all must have ended, on `time.monotonic`.
        edits: path to text that the script's process sees in its place.
        parts: backward calls of a step.
    """

    folder: Path
    index: int
    steps: int
    before: int
    until: float
    edits: Mapping[str, str]
    parts: int = 1

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()


def run_arm(
    plan: Plan,
    treatments: Sequence[Mapping[str, Any]],
    number: int,
    edited: bool = False,
    work: Callable[[Ask], None] | None = None,
) -> Arm:
    """Repeat a run.

    Args:
        plan: how.
        treatments: those of this arm.
        number: of the trial: seeds the interpreter, and is added to every seed that the script sets.
        edited: whether the arm sees the plan's edits.
        work: is called with a way to ask for experiments before the repetition ends.
    """
    if plan.left < 1:
        return Arm(None, plan.index, 0.0, "the time is up")
    stop = {"name": "stop_after", "parameters": {"steps": plan.before + plan.steps, "parts": plan.parts}}
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(), ignore_cleanup_errors=True) as scratch:
        edits = plan.edits if edited else {}
        ended = repeat(plan.folder, Path(scratch), [*treatments, stop], plan.left, number=number, edits=edits, work=work)
        run = load_run(ended.folder) if ended.folder is not None else None
        return Arm(run, plan.index, ended.seconds, _reason(ended), ended.timed_out)


def _reason(ended: Repetition) -> str:
    if ended.refused:
        return f"the repetition was stopped at {ended.refused}: it may not change anything, and namespaces are refused here"
    if ended.timed_out:
        return "the repetition ran out of time"
    return "" if ended.folder is not None else "the repetition recorded nothing"


def scratch_prefix() -> str:
    """Return how scratch folders of this process begin; what a killed one left is found by it (`trials/scratch.py`)."""
    import os

    return f"lossdoctor-trial-{os.getpid()}-"
