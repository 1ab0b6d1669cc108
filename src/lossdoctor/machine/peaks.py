"""What this device reaches: a large matrix product, a large copy, and the smallest operation.

Measured right beside the step that they are compared with, not kept in a cache: so a machine that is busy with other work
slows both alike. A third of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

HALF_SIDE = 256  # a processor without units for bfloat16 takes forty times as long
SIDE = 768  # of the square matrices: above the size from which products reach their rate on the CPUs tried, 20 ms at most
COPY_BYTES = 64 << 20  # larger than the caches of the CPUs tried


@dataclass(frozen=True)
class Peaks:
    """Hold the measured limits of a device.

    Args:
        flops: floating-point operations per second of a large matrix product in float32.
        half_flops: the same in bfloat16.
        bandwidth: bytes per second, read and written, of a large copy.
        launch_seconds: what the smallest operation takes.
    """

    flops: float
    half_flops: float
    bandwidth: float
    launch_seconds: float

    def facts(self) -> dict[str, float]:
        """Return them as plain values."""
        return asdict(self)


def measure_peaks(device: torch.device, repeats: int = 5) -> Peaks:
    """Measure the limits of a device; the best of some repeats each.

    Example:
        >>> measure_peaks(torch.device("cpu"), 1).bandwidth > 1e8
        True
    """
    a, b = torch.randn(SIDE, SIDE, device=device), torch.randn(SIDE, SIDE, device=device)
    source = torch.empty(COPY_BYTES // 4, device=device).fill_(1.0)
    target = torch.empty_like(source)
    one = torch.ones(1, device=device)
    half = [each[:HALF_SIDE, :HALF_SIDE].to(torch.bfloat16) for each in (a, b)]
    with torch.no_grad():
        product = _best(lambda: a @ b, device, repeats)
        half_product = _best(lambda: half[0] @ half[1], device, repeats)
        copy = _best(lambda: target.copy_(source), device, repeats)
        launch = _best(lambda: [one.add_(1.0) for _ in range(100)], device, repeats) / 100
    return Peaks(2 * SIDE**3 / product, 2 * HALF_SIDE**3 / half_product, 2 * COPY_BYTES / copy, launch)


def _best(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        wait_for(device)
        began = time.perf_counter()
        work()
        wait_for(device)
        times.append(time.perf_counter() - began)
    return min(times)


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all that it was given; a CPU always has."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()
