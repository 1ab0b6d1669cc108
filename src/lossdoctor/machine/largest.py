"""The largest batch that fits: by real attempts under a limit, from a prediction, closing in from both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

WITHIN = 0.01  # of the largest that fits; processes under one limit differ by one per cent more
MOST = 1 << 24  # rows: what fits at that size is not limited by memory


def largest(fits: Callable[[int], bool], guess: int, within: float = WITHIN) -> int:
    """Return a number of rows that fits, so that one larger by the share `within` does not; 0 where not even one row fits.

    Args:
        fits: tries a step with so many rows.
        guess: where to begin, from a prediction.

    Example:
        >>> tried = []
        >>> found = largest(lambda rows: tried.append(rows) or rows <= 1000, 900)
        >>> 990 <= found <= 1000, len(tried) < 12
        (True, True)
    """
    low, high = 0, MOST + 1  # the largest that fitted, the smallest that did not
    rows, stride = max(1, guess), within
    while high - low > max(1, int(within * low)):
        if fits(rows):
            low = rows
        else:
            high = rows
        if high > MOST:
            rows, stride = min(MOST, max(rows + 1, int(rows * (1 + stride)))), 2 * stride
        elif low == 0:
            rows, stride = max(1, min(rows - 1, int(rows * (1 - min(0.5, stride))))), 2 * stride
        else:
            rows = (low + high) // 2
        if low >= MOST or high <= 1:
            break
    return low


@contextmanager
def limited(limit_bytes: int) -> Iterator[None]:
    """Let this process have so many bytes of private memory in all (Linux), and as many as before afterwards."""
    import resource

    _give_back_at_once()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _give_back_at_once() -> None:
    """Let every larger block be mapped by itself, so that what a failed attempt held is free again for the next."""
    import ctypes

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(-3, 1 << 17)  # M_MMAP_THRESHOLD; setting it ends its growing by itself
        library.malloc_trim(0)


def private_bytes() -> int:
    """Return the private memory of this process, which is what `limited` limits.

    Example:
        >>> private_bytes() > 0
        True
    """
    with open("/proc/self/status", encoding="ascii") as stream:
        return next(int(line.split()[1]) << 10 for line in stream if line.startswith("VmData"))


def ran_out(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out: a device's, or this process's.

    Example:
        >>> ran_out(MemoryError())
        True
    """
    told = str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in told or "not enough memory" in told  # fmt: skip  # noqa: E501
