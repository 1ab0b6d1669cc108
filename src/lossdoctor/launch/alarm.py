"""End a script at a time: at its next chance where it comes to one, else wherever it is. Standard library only."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

_PATIENCE = 2.0  # for a step under way, which is better measured to its end
_over = False


def over() -> bool:
    """Tell whether the time has come; asked where a script is best ended, after a step."""
    return _over


def at(until: float, end: Callable[[], object]) -> None:
    """Call `end` in the main thread at a time of the monotonic clock, unless `over` was heeded before.

    Args:
        until: in seconds, as `time.monotonic` counts.
        end: does not return.
    """
    if not hasattr(signal, "SIGALRM"):
        return  # the caller ends the process

    def ring(number: int, frame: FrameType | None) -> None:
        global _over
        if _over:
            end()
        _over = True
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, until - time.monotonic()))


def off() -> None:
    """Let the time pass: the end has begun."""
    if hasattr(signal, "SIGALRM"):
        signal.setitimer(signal.ITIMER_REAL, 0.0)
