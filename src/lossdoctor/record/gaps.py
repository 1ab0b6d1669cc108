"""Measure the gap between a step and the next forward: how long, and how much of it the thread neither computed nor queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lossdoctor.record.clocks import Clocks
from lossdoctor.record.window import Window

if TYPE_CHECKING:
    from lossdoctor.record.steady import Steady

_LONG = 0.05  # of the time from one forward to the next: a shorter gap is no bottleneck
_SHARE = 0.002  # of a step, for reading the thread's clocks: these are system calls


class Gaps:
    """Decide in which gaps the thread's clocks are read, and read them.

    Args:
        clock: wall seconds.
    """

    __slots__ = ("_every", "clock", "clocks", "left", "measuring", "opened")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.clocks = Clocks()
        self.opened = 0.0  # when the gap that is open began; 0 where none is
        self.measuring = False
        self.left = 0  # gaps until the next that is measured
        self._every = 1

    def start(self) -> None:
        """Read the clocks where the gap begins."""
        self.measuring, self.left = True, self._every
        self.clocks.start()
        self.opened = self.clock()  # reading the clocks is no part of the gap

    def stop(self, window: Window | Steady) -> None:
        """Read the clocks where the gap ends."""
        self.measuring = False
        window.gap_cpu, window.queued = self.clocks.stop()

    def learn(self, gap: float, step: float) -> None:
        """Read the clocks more often where gaps are long.

        Args:
            gap: seconds.
            step: seconds from the end of the step before to the end of the one after it.
        """
        if step > 0:
            every = 1 + int(self.clocks.cost / (_SHARE * step))
            self._every = every if gap > _LONG * step else 64 * every
