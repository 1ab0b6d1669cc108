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

    def read(self) -> tuple[float, float]:
        """Return CPU seconds and run-queue seconds of this thread."""
        if self._file is None:
            return time.thread_time(), float("nan")
        try:
            return time.thread_time(), int(os.pread(self._file, 80, 0).split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):
            return time.thread_time(), float("nan")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
