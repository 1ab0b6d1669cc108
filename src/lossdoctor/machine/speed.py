"""Try levers of speed on a script: each beside a control, in turn, in children shut off from the machine."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossdoctor.core.run import Run, Training
from lossdoctor.core.store import load_run
from lossdoctor.derive.parts import time_parts
from lossdoctor.derive.wait import wait_share
from lossdoctor.launch.child import repeat
from lossdoctor.machine.choice import Lever, Tried, levers, together
from lossdoctor.machine.pace import Pace, agreement, interval, pace

TREATS = "lossdoctor.machine.levers"
WARM = 5  # steps, as in `machine.levers`
CONTROL_SECONDS = 3.0  # of steps in each child, beyond the first: more would leave fewer pairs
ROUNDS = 4
HOPE, PAYS = 1.04, 1.03  # a factor below which a lever is not tried again; and that its interval must exceed
NARROW = 0.05  # half of an interval, relative, at which a lever is tried no further
SLOW = 2.0  # times the control's time, after which a lever's steps are cut short
KEPT = 0.3  # of the time, for the levers that pay together


@dataclass
class Result:
    """Hold what the trials found.

    Args:
        control: the first untreated run, with its facts; None where nothing was recorded.
        tried: every lever, with its factors.
        combined: those that pay, pulled together; None where fewer than two pay.
        seconds: what the trials took.
        notes: what went wrong.
    """

    control: Run | None = None
    tried: list[Tried] = field(default_factory=list)
    combined: Tried | None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


class Trials:
    """Run the script again and again until it is known which levers pay.

    Args:
        private: a folder with the script's `private.json`.
        seconds: for all of it, at most.
        say: told what is done.
    """

    def __init__(self, private: Path, seconds: float, say: Callable[[str], None]) -> None:
        self._private = private
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._say = say
        self._stop: dict[str, Any] = {}
        self._took: list[float] = []  # seconds of each child
        self.result = Result()

    def run(self, wanted: Sequence[str] = ()) -> Result:
        """Do the trials.

        Args:
            wanted: names of levers in `machine.levers`; all that may apply where empty.
        """
        first = self._first()
        if first is not None and self.result.control is not None:
            training = self.result.control.trainings[0]
            shares = _shares(training)
            chosen = [lever for lever in levers(training, _cores()) if _wants(wanted, lever)]
            chosen.sort(key=lambda lever: -lever.bound(shares))  # where time runs out, what promises most was tried
            self.result.tried = [Tried(lever, refused=hopeless(lever, shares, self.result.control.facts)) for lever in chosen]
            self._stop = {"steps": training.steps, "seconds": SLOW * first.step_seconds * training.steps}
            self._rounds()
            self._combine()
        self.result.seconds = time.monotonic() - self._began
        return self.result

    def _first(self) -> Pace | None:
        """Run the control once: how long all others run is taken from it, and where the time goes."""
        run = self._child([], {"seconds": CONTROL_SECONDS, "look": True}, "the script as it is")
        self.result.control = run
        if run is None or not run.trainings:
            self.result.notes.append("nothing was trained in the time that was given")
            return None
        return _pace_of(run)

    def _rounds(self) -> None:
        for number in range(ROUNDS):
            open_ones = [tried for tried in self.result.tried if _is_open(tried)]
            control = self._pace([], f"round {number + 1}: the script as it is") if open_ones and self._time_left(KEPT) else None
            if control is None:
                return
            for tried in open_ones:
                if self._time_left(KEPT):
                    self._try(tried, [tried.lever], control)

    def _combine(self) -> None:
        paying = [(tried.lever, interval(tried.factors)[0]) for tried in self.result.tried if pays(tried)]
        chosen = together(paying)
        if len(chosen) < 2:
            return
        title = " + ".join(lever.title for lever in chosen)
        changes = any(lever.changes for lever in chosen)
        self.result.combined = Tried(Lever(title, {"name": "", "parameters": {}}, "", "", changes=changes))
        for _ in range(2):
            control = self._pace([], "all that pay together: the script as it is") if self._time_left() else None
            if control is not None and self._time_left():
                self._try(self.result.combined, chosen, control)

    def _try(self, tried: Tried, chosen: Sequence[Lever], control: Pace) -> None:
        treatments = [dict(lever.treatment) for lever in chosen]
        run = self._child(treatments, self._stop, tried.lever.title)
        found = _pace_of(run)
        if run is not None and run.facts.get("lever"):
            tried.refused = str(run.facts["lever"])
        elif found is None:
            tried.refused = "the script did not get through its steps with it"
        else:
            tried.factors.append(control.row_seconds / found.row_seconds)
            tried.losses = "differ" if tried.lever.ceiling else agreement(control.losses, found.losses)

    def _pace(self, treatments: Sequence[Mapping[str, Any]], what: str) -> Pace | None:
        return _pace_of(self._child(treatments, self._stop, what))

    def _child(self, treatments: Sequence[Mapping[str, Any]], stop: Mapping[str, Any], what: str) -> Run | None:
        self._say(f"{what} ...")
        with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch:
            limit = max(5.0, self._until - time.monotonic())
            if self._took:
                limit = min(limit, 10.0 + 3 * max(self._took))
            ended = repeat(self._private, Path(scratch), [*treatments, {"name": "stop", "parameters": stop}], limit, treats=TREATS)
            self._took.append(ended.seconds)
            if ended.refused:
                self.result.notes.append(f"the script was stopped at {ended.refused}: tried, it may change nothing here")
            return load_run(ended.folder) if ended.folder is not None else None

    def _time_left(self, kept: float = 0.0) -> bool:
        """Tell whether there is time for another child, with a share of all kept for later."""
        return time.monotonic() + sorted(self._took)[len(self._took) // 2] < self._until - kept * (self._until - self._began)


def described(result: Result) -> dict[str, Any]:
    """Return what the trials found as plain values, the levers by their gain, best first."""
    facts = result.control.facts if result.control is not None else {}
    order = sorted(result.tried, key=lambda tried: -interval(tried.factors)[0] if tried.factors else math.inf)
    return {
        "levers": [_row(tried) for tried in order],
        "combined": None if result.combined is None else _row(result.combined),
        "lines": facts.get("lines") or [],
        "waits": facts.get("waits") or [],
        "trial_seconds": round(result.seconds, 1),
    }


def _row(tried: Tried) -> dict[str, Any]:
    row: dict[str, Any] = {"title": tried.lever.title, "advice": tried.lever.advice, "refused": tried.refused, "pairs": len(tried.factors)}
    row |= {"losses": tried.losses, "changes_results": tried.lever.changes, "ceiling": tried.lever.ceiling, "pays": pays(tried)}
    if tried.factors:
        factor, low, high = interval(tried.factors)
        row |= {"factor": round(factor, 3), "low": round(low, 3) if len(tried.factors) > 1 else None}
        row |= {"high": round(high, 3) if len(tried.factors) > 1 else None}
    return row


def hopeless(lever: Lever, shares: Mapping[str, float], facts: Mapping[str, Any]) -> str:
    """Say why a lever need not be tried; empty where it may pay.

    Args:
        shares: of a step's time, by part.
        facts: of the control's run, with the `peaks` of this device.

    Example:
        >>> hopeless(Lever("", {"name": "autocast"}, "", "", parts=("forward",)), {"forward": 0.01}, {})
        'it could make it at most 1.01 times as fast'
    """
    bound, peaks = lever.bound(shares), facts.get("peaks") or {}
    if bound < HOPE:
        return f"it could make it at most {bound:.3g} times as fast"
    if lever.treatment["name"] == "autocast" and peaks and peaks["half_flops"] < peaks["flops"]:
        return f"products in bfloat16 take {peaks['flops'] / peaks['half_flops']:.2g} times as long on this device"
    return ""


def _wants(names: Sequence[str], lever: Lever) -> bool:
    return lever.treatment["name"] in names if names else not lever.asked


def _pace_of(run: Run | None) -> Pace | None:
    return pace(run.trainings[0], WARM, run.facts.get("queued") or ()) if run is not None and run.trainings else None


def _shares(training: Training) -> dict[str, float]:
    """Return where the time of the steps goes."""
    passes = [(row.get("began", 0.0), row.get("began", 0.0) + row.get("seconds", 0.0)) for row in training.rows.get("validation", [])]
    named = (training.signals.get(name) for name in ("loader_seconds", "idle_seconds", "gap_seconds"))
    loader, idle, gap = named
    wait = wait_share(training.series("wall"), loader, idle, gap, passes)
    return time_parts(training.signals, wait, passes) or {}


def _is_open(tried: Tried) -> bool:
    """Tell whether another pair could change what is said of a lever."""
    if tried.refused or not tried.factors:
        return not tried.refused
    mean, low, high = interval(tried.factors)
    if mean < HOPE:
        return False
    return len(tried.factors) < 2 or (high - low) / 2 > NARROW * mean


def pays(tried: Tried) -> bool:
    """Tell whether a lever is faster for certain; where it was tried once or twice, each time by more than chance gives."""
    if tried.refused or not tried.factors or tried.lever.ceiling:
        return False
    _, low, _ = interval(tried.factors)
    return low > PAYS if len(tried.factors) > 2 else min(tried.factors) > HOPE + PAYS - 1


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
