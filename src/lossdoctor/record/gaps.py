"""Measure the gap between a step and the next forward: how long, and how much of it the thread neither computed nor queued."""

from __future__ import annotations

from collections.abc import Callable

from lossdoctor.record.clocks import Clocks
from lossdoctor.record.window import Window

_LONG = 0.05  # of the time from one forward to the next: a shorter gap is no bottleneck
_SHARE = 0.002  # of a step, for reading the thread's clocks: these are system calls


class Gaps:
    """Measure gaps.

    Args:
        clock: wall seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.clocks = Clocks()
        self._opened = self._closed = 0.0
        self._measuring = False
        self._every = 1
        self._count = 0

    def open(self, now: float, measure: bool = True) -> None:
        """Begin a gap; read the thread's clocks now and then, where gaps are long more often."""
        self._opened = now
        self._count += measure
        self._measuring = measure and self._count >= self._every
        if self._measuring:
            self._count = 0
            self.clocks.start()
            self._opened = self.clock()  # reading the clocks is no part of the gap

    def close(self, window: Window, now: float, excluded: float) -> None:
        """End the gap that is open, into a window.

        Args:
            window: of the forward that begins.
            now: when it begins.
            excluded: seconds that validation passes took.
        """
        if not self._opened:
            return
        gap = window.gap = max(0.0, now - self._opened - excluded)
        step = now - self._closed
        self._closed = now
        every = 1 + int(self.clocks.cost / (_SHARE * step))
        self._every = every if gap > _LONG * step else 16 * every
        if self._measuring and not excluded:
            cpu, queue = self.clocks.stop()
            window.gap_cpu, window.idle = cpu, max(0.0, gap - cpu - queue)
        self._opened = 0.0
