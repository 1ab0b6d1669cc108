"""Find the user's lines that time goes to, and those at which the host waits for values of a device."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from lossdoctor.machine.census import Census, Counting
from lossdoctor.machine.peaks import measure_peaks
from lossdoctor.record.places import user_frame

INTERVAL = 0.005  # s between two looks at where the thread is; a look takes some 20 us
FIRST, COUNTED = 5, 2  # the step from which the thread is looked at, and steps before it of which waits are counted
MOST_LINES = 10
_NOT_THE_USERS = ("/lossdoctor/record/", "/torch/optim/")


class Look:
    """Sample the thread that trains, and count its waits over some steps."""

    def __init__(self) -> None:
        self._lines: Counter[tuple[str, int]] = Counter()
        self._census = Census()
        self._counting: Counting | None = None
        self._steps = self._counted = 0
        self._done = threading.Event()

    def step_ended(self) -> None:
        """Go on to the next step."""
        self._steps += 1
        if self._steps == FIRST:
            sampler = threading.Thread(target=self._sample, args=(threading.get_ident(),), daemon=True)
            sampler.start()
        if self._counting is not None:
            self._counted += 1
            if self._counted == COUNTED:
                self._counting.__exit__(None, None, None)  # type: ignore[no-untyped-call]
                self._counting = None
        elif self._steps == 2:
            self._counting = Counting(self._census, own_place)
            self._counting.__enter__()  # type: ignore[no-untyped-call]

    def tell(self, tell: Callable[[str, Any], None]) -> None:
        """Write the facts `lines` (file, line, share of the time), `waits` (file, line, times and seconds per step) and `device`."""
        self._done.set()
        whole = sum(self._lines.values())
        tell("peaks", measure_peaks(torch.device("cpu")).facts())
        tell("lines", [[*place, round(count / whole, 4)] for place, count in self._lines.most_common(MOST_LINES)])
        counted = max(1, self._counted)
        waits, waited = self._census.waits, self._census.waited
        tell("waits", [[*place, round(n / counted, 2), round(waited[place] / counted, 7)] for place, n in waits.most_common(MOST_LINES)])
        tell("device", accelerator())

    def _sample(self, thread: int) -> None:
        while not self._done.wait(INTERVAL):
            frame = user_frame(sys._current_frames().get(thread))
            if frame is not None:
                self._lines[frame.f_code.co_filename, frame.f_lineno] += 1


def accelerator() -> str:
    """Return the kind of accelerator that holds memory of this process; `cpu` where there is none, or none is used."""
    for kind in ("cuda", "xpu", "mps"):
        module = getattr(torch, kind, None)
        if module is None or not module.is_available():
            continue
        held = module.current_allocated_memory() if kind == "mps" else module.memory_allocated()
        if held:
            return kind
    return "cpu"


def own_place() -> tuple[str, int] | None:
    """Return the user's line that asked for an operation; None where the recorder did, or an optimiser, whose counters lie on the host."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if any(part in name for part in _NOT_THE_USERS):
            return None
        if user_frame(frame) is frame:
            return name, frame.f_lineno
        frame = frame.f_back
    return None
