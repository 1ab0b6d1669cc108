"""Clocks of the training thread: CPU time, and time spent waiting for a core."""

from __future__ import annotations

import os
import time


class Clocks:
    """Read the thread's CPU time and run-queue time.

    Run-queue time is the second field of /proc/thread-self/schedstat (nanoseconds); NaN where the system has none.

    Example:
        >>> cpu, queue = Clocks().read()
        >>> cpu > 0
        True
    """

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._file = None
        self._cpu = self._queue = 0.0
        self.cost = 2 * min(self._time_one() for _ in range(5))  # seconds for a start and a stop

    def read(self) -> tuple[float, float]:
        """Return CPU seconds and run-queue seconds of this thread."""
        if self._file is None:
            return time.thread_time(), float("nan")
        try:
            return time.thread_time(), int(os.pread(self._file, 80, 0).split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):
            return time.thread_time(), float("nan")

    def _time_one(self) -> float:
        began = time.perf_counter()
        self.read()
        return time.perf_counter() - began

    def start(self) -> None:
        """Remember the clocks as they are now."""
        self._cpu, self._queue = self.read()

    def stop(self) -> tuple[float, float]:
        """Return CPU and run-queue seconds since `start`."""
        cpu, queue = self.read()
        return cpu - self._cpu, queue - self._queue

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
