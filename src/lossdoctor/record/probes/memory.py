"""The signal `memory`: what the process holds in memory."""

from __future__ import annotations

import os

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 10 us.

    Example:
        >>> resident_bytes() > 1_000_000
        True
    """
    try:
        with open(_STATM, "rb") as stream:
            return int(stream.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        import psutil

        return int(psutil.Process().memory_info().rss)


resident_memory = resident_bytes  # the name of the signal's meaning, as the recorder looks it up
