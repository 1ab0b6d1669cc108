"""What a trial costs, said beforehand; how many steps fit; whether there is room."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Run, Series, Training
from lossdoctor.trials.arms import scratch_prefix

START_SECONDS = 1.0  # python's own start and shutting the process off, which the watched run's clock does not hold
REPETITIONS = 3  # of a trial whose effect is clear at once: two treated, one untreated
TIMES, BESIDES = 2.0, 20.0  # a confirmation should cost at most twice the run's time and so many seconds
LEAST_STEPS = 20
ROOM_BYTES = 256 << 20  # a record of 64 MB for each of two repetitions, and as much again for what they keep in their scratch folders


def start_seconds(training: Training) -> float:
    """Return how long a repetition takes to its first step."""
    wall = training.signals.get("wall", Series.of([])).finite()
    return START_SECONDS + (wall.first if len(wall) else 0.0)


def step_seconds(training: Training) -> float:
    """Return the seconds of a step, validation included."""
    wall = training.signals.get("wall", Series.of([])).finite()
    return (wall.last - wall.first) / (len(wall) - 1) if len(wall) > 1 else 0.0


def run_seconds(run: Run, training: Training) -> float:
    """Return what the whole run took."""
    told = (run.facts.get("ended") or {}).get("seconds")
    return float(told) if told else start_seconds(training) + training.steps * step_seconds(training)


def seconds_of(training: Training, steps: int, repetitions: int = REPETITIONS) -> float:
    """Return about how long a trial of so many steps takes."""
    return repetitions * (start_seconds(training) + steps * step_seconds(training))


def allowance(run: Run, training: Training) -> float:
    """Return the seconds that one trial may take where nobody says otherwise: twice the run and twenty seconds."""
    return TIMES * run_seconds(run, training) + BESIDES


def steps_within(training: Training, seconds: float) -> int:
    """Return how many steps can be compared within so many seconds; 0 where too few to tell anything.

    Example:
        >>> steps_within(Training(signals={"loss": Series.of([1.0] * 100), "wall": Series.of([0.01 * i for i in range(100)])}), 60)
        100
    """
    each = step_seconds(training)
    left = seconds / REPETITIONS - start_seconds(training)
    fitting = training.steps if each <= 0 and left > 0 else math.floor(left / each) if left > 0 else 0
    steps = min(training.steps, fitting)
    return steps if steps >= min(LEAST_STEPS, training.steps) else 0


def check_room() -> None:
    """Refuse to start where the disk is short, after clearing what killed trials have left.

    Raises:
        LossdoctorError: less than 256 MB are free where repetitions keep their records.
    """
    folder = Path(tempfile.gettempdir())
    for left in folder.glob("lossdoctor-trial-*"):
        if not _alive(left.name.removeprefix("lossdoctor-trial-").split("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise LossdoctorError(f"{folder} has {free >> 20} MB free and a trial needs {ROOM_BYTES >> 20}; TMPDIR names another folder")


def _alive(pid: str) -> bool:
    if not pid.isdigit() or int(pid) == os.getpid():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


__all__ = ["allowance", "check_room", "run_seconds", "scratch_prefix", "seconds_of", "step_seconds", "steps_within"]
