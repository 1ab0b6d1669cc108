"""The script once more, in a child that is shut off from the machine, treated, and ended after some steps.

Same arguments, working directory and paths as the watched run, from its `private.json`. What it writes is gone with it; its
record lies in a scratch folder that the caller owns.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lossdoctor.launch.ask import Ask, Questions
from lossdoctor.launch.isolation import can_enter_namespaces

_START = Path(__file__).with_name("start.py")
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Repetition:
    """Hold how a repeated run ended.

    Args:
        folder: its run folder, or None where nothing was recorded.
        way: `namespaces` or `guarded`.
        refused: what a guarded child may not do and tried, with the path; empty where nothing stopped it.
        timed_out: whether it was ended at the time limit.
        seconds: what it took.
    """

    folder: Path | None
    way: str
    refused: str
    timed_out: bool
    seconds: float


@cache
def way_of_isolation() -> str:
    """Return `namespaces` where they are allowed, else `guarded`."""
    return "guarded" if can_enter_namespaces() else "namespaces"


def repeat(
    run: Path,
    scratch: Path,
    treatments: Sequence[Mapping[str, Any]],
    seconds: float,
    way: str | None = None,
    treats: str = "lossdoctor.trials.treatments",
    *,
    number: int | None = None,
    edits: Mapping[str, str] | None = None,
    work: Callable[[Ask], None] | None = None,
    answers: str = "lossdoctor.experiments.workup",
) -> Repetition:
    """Run the script of a recorded run again.

    Args:
        run: its run folder, with `private.json`.
        scratch: an empty folder that survives the child and is the only one that it can write for good.
        treatments: as the module `treats` knows them.
        seconds: time limit; the child is then killed with all its children.
        way: how to shut it off; the best that the machine allows where left out.
        treats: the module whose `apply` interprets treatments in the child.
        number: seeds the interpreter and is added to every seed that the script sets; random numbers are left alone where None.
        edits: path to text that the child sees in its place; needs namespaces.
        work: is called with a way to ask the child for experiments, once its script has ended or was ended.
        answers: the module that answers in the child.

    Raises:
        OSError: `private.json` cannot be read.
    """
    private = json.loads((run / "private.json").read_text())
    way = way or way_of_isolation()
    word = scratch / "ending.json"
    options = {
        "out": str(scratch / "runs"),
        "script": private["argv"][0],
        "module": private["module"],
        "budget": 0.01,
        "max_steps": None,
        "facts": {"treatments": [dict(treatment) for treatment in treatments]},
        "ending": str(word),
        "ask": str(scratch / "ask") if work is not None else "",
        "answers": answers,
        "isolation": {"way": way, "keep": str(scratch)},
        "number": number,
        "edits": dict(edits or {}),
        "treatments": [*treatments, *([{"name": "shift_seeds", "parameters": {"number": number}}] if number is not None else [])],
        "treats": treats,
    }
    began = time.monotonic()
    command = [private.get("python") or sys.executable, str(_START), json.dumps(options), *private["argv"]]
    with (scratch / "output.txt").open("wb") as output, _asked(scratch / "ask", work):
        child = subprocess.Popen(
            command,
            cwd=private["cwd"],
            env=private["environ"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        timed_out = _wait(child, seconds)
    told = _told(word)
    folders = sorted((scratch / "runs").glob("*/run.json"))
    return Repetition(folders[-1].parent if folders else None, way, told.get("refused", ""), timed_out, time.monotonic() - began)


@contextlib.contextmanager
def _asked(path: Path, work: Callable[[Ask], None] | None) -> Iterator[None]:
    """Let a child that is started within the block be asked."""
    if work is None:
        yield
        return
    questions = Questions(path)
    questions.when_asked_for(work)
    try:
        yield
    finally:
        questions.close()


def _wait(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the child; end it and its children where it takes too long, or where we are ended ourselves."""
    _running.add(child)
    try:
        child.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        _end(child)
        child.wait()
        _running.discard(child)


def end_all() -> None:
    """End every repetition that runs, so that threads that wait for one go on; for an interrupted command."""
    for child in list(_running):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _told(word: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        told: dict[str, Any] = json.loads(word.read_text())
        return told
    return {}
