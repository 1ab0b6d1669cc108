"""Answer the requests of the supervisor in the script's process: do one experiment, give its facts.

An experiment never raises and leaves nothing behind: what goes wrong becomes the status `unknown` with the reason.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, TimeOver, WorkClock, untouched
from lossdoctor.record.capture import Captures

GRACE = 1.0  # s that an experiment may overrun what it was given: the step under way, or the model under way


def names() -> list[str]:
    """Return the names of the experiments that a replay can do: the modules of this folder that have `measure`."""
    package = importlib.import_module("lossdoctor.experiments")
    modules = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return [name for name in modules if hasattr(importlib.import_module(f"lossdoctor.experiments.{name}"), "measure")]


class Workup:
    """Do experiments on the captures of one run.

    Args:
        captures: what was kept; None where nothing was watched.
        folder: of the run.
    """

    def __init__(self, captures: Captures | None, folder: Path | None = None) -> None:
        self._captures = captures
        self._folder = folder
        self._replay: Replay | None = None
        self._refused = ""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do one experiment and return its line of the record (`experiment` in docs/architecture.md).

        Args:
            request: `experiment` (its name; without one, the folder of the run is returned), `seconds` of work, `parameters`, and
                `patience` (how many times as long it may take on a busy machine; 1).

        Returns:
            the line, with `worked`: the seconds by which it was measured, at most `seconds` and a little.
        """
        if "experiment" not in request:
            return {"folder": str(self._folder)}
        begun, patience = time.monotonic(), float(request.get("patience", 1.0))
        clock = WorkClock(patience)
        try:
            with untouched(), at_most(patience * request["seconds"] + GRACE):
                facts = self._measure(request["experiment"], Deadline.after(request["seconds"], clock), request.get("parameters", {}))
            status = "done"
        except ReplayRefused as refusal:
            status, facts = "unknown", {"reason": str(refusal)}
        except Exception as error:
            status, facts = "unknown", {"reason": f"{type(error).__name__}: {error}"}
        seconds = round(time.monotonic() - begun, 3)
        return {
            "kind": "experiment",
            "track": None,
            "name": request["experiment"],
            "status": status,
            "seconds": seconds,
            "worked": round(clock(), 3),
            "facts": plain(facts),
        }

    def _measure(self, name: str, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
        if name not in names():
            raise ReplayRefused(f"no experiment is called {name!r}")
        module = importlib.import_module(f"lossdoctor.experiments.{name}")
        of_model = getattr(module, "RUNS_THE_MODEL", True)
        return dict(module.measure(self._of_model() if of_model else Replay(self._held, of_model=False), deadline, parameters))

    @property
    def _held(self) -> Captures:
        if self._captures is None:
            raise ReplayRefused("nothing was captured")
        return self._captures

    def _of_model(self) -> Replay:
        if self._refused:
            raise ReplayRefused(self._refused)
        try:
            self._replay = self._replay or Replay(self._held)
            return self._replay
        except ReplayRefused as refusal:
            self._refused = str(refusal)
            raise


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TimeOver` in here, again and again, once so many seconds are over; nothing in a thread or where there are no alarms.

    Experiments look at their deadline between steps; a library that computes for long within one call does not.
    """

    def ring(number: int, frame: Any) -> None:
        raise TimeOver("the time was over")

    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.05, seconds), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def plain(value: Any) -> Any:
    """Turn non-finite numbers into the strings of the record, anywhere in a JSON value.

    Example:
        >>> plain({"loss": float("nan")})
        {'loss': 'nan'}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") and not isinstance(value, (int, float, str, bool)) else value
