"""Run a script as a checked one: shut off from the machine, ended when enough was seen, then asked about."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossdoctor.launch.ask import Ask, Questions
from lossdoctor.launch.child import way_of_isolation
from lossdoctor.launch.supervisor import Ending, Job, interpreter_options

_START = Path(__file__).with_name("start.py")
_LAST_LINES = 20
WORKUP_SECONDS = 10.0  # the report then stands within 40 s of the start
LATE = 2.0  # s that the last answer may come late


@dataclass(frozen=True)
class Limits:
    """Hold when a checked script is ended.

    Args:
        seconds: from its start, at most.
        steps: that are enough, once a validation pass was seen.
        batches: of one loader's epoch until then.
        whole: seconds from its start to the last answer, at most.
    """

    seconds: float = 25.0
    steps: int = 300
    batches: int = 50
    whole: float = 25.0 + WORKUP_SECONDS


@dataclass
class Clock:
    """Hold the time of the monotonic clock at which the last answer must be there; it may be put off.

    Example:
        >>> clock = Clock(100.0)
        >>> clock.last += 10
        >>> clock.last
        110.0
    """

    last: float


@dataclass(frozen=True)
class Checked:
    """Hold what a checked script left.

    Args:
        ending: how it ended; `stopped` where it was ended since enough was seen.
        folder: its run, within the scratch folder; None where nothing was recorded.
        way: how it was shut off.
        refused: what it tried and was not allowed to.
        words: the last lines of its output.
    """

    ending: Ending
    folder: Path | None
    way: str
    refused: str
    words: str


def run_checked(job: Job, scratch: Path, limits: Limits, work: Callable[[Ask, Clock], None]) -> Checked:
    """Run a script until enough was seen of it, and let it be asked.

    Args:
        scratch: an empty folder, the only one that the script can write for good.
        work: called with a way to ask and the clock that it must heed, or put off.
    """
    began, clock = time.time(), time.monotonic()
    until, ends = clock + limits.seconds, Clock(clock + limits.whole)
    questions = Questions(scratch / "ask")
    command = [sys.executable, *interpreter_options(sys.orig_argv, sys.argv), str(_START), _options(job, scratch, until, limits)]
    output = scratch / "output.txt"
    try:
        with output.open("wb") as stream:
            child = subprocess.Popen(
                [*command, *job.arguments], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
            )
        questions.when_asked_for(lambda ask: work(ask, ends))
        status = _wait(child, ends)
    finally:
        questions.close()
    told = _told(scratch / "ending.json")
    how, exception = ("killed", None) if status is None else (told.get("how", "exit"), told.get("exception"))
    if status is not None and status < 0 and not told:
        how = "signal"
    seconds = told.get("clock", time.monotonic()) - clock
    ending = Ending(how, int(told.get("status", status or 0)), exception, seconds, child.pid, began, told.get("note", ""))
    folders = sorted((scratch / "runs").glob("*/run.json"))
    return Checked(ending, folders[-1].parent if folders else None, way_of_isolation(), told.get("refused", ""), _end_of(output))


def _options(job: Job, scratch: Path, until: float, limits: Limits) -> str:
    options: dict[str, Any] = {
        "out": str(scratch / "runs"),
        "script": job.script,
        "module": job.module,
        "budget": job.budget,
        "max_steps": None,
        "facts": dict(job.facts),
        "ending": str(scratch / "ending.json"),
        "ask": str(scratch / "ask"),
        "answers": job.answers,
        "isolation": {"way": way_of_isolation(), "keep": str(scratch)},
        "treats": "lossdoctor.trials.enough",
        "treatments": [{"name": "enough", "parameters": {"steps": limits.steps, "batches": limits.batches}}],
        "until": until,
    }
    return json.dumps(options)


def _wait(child: subprocess.Popen[bytes], ends: Clock) -> int | None:
    """Wait for the child and return its status; end it and its children when the clock has run down, or where we are ended ourselves."""
    try:
        while time.monotonic() < ends.last + LATE:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(min(1.0, max(0.1, ends.last + LATE - time.monotonic())))
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _told(word: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        told: dict[str, Any] = json.loads(word.read_text())
        return told
    return {}


def _end_of(output: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(output.read_text(errors="replace").splitlines()[-_LAST_LINES:])
    return ""
