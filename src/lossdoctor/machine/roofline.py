"""How fast a step could be at most on another device: each operation at the device's roof, what is no compute as it is now.

An operation takes at least its floating-point operations over the peak, its bytes over the bandwidth, and the time that the host
needs to launch it (Williams, Waterman and Patterson, 2009: the roofline model). Time that is spent waiting for data or in the script
itself stays (Amdahl's law).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lossdoctor.machine.devices import LAUNCH_SECONDS, Device

Kinds = Sequence[tuple[int, float, float]]  # count, flops and bytes of one operation


@dataclass(frozen=True)
class Limit:
    """Hold the least time that operations take on a device, and what sets it.

    Args:
        seconds: of a step's operations.
        compute: share of these seconds that are set by arithmetic.
        memory: share set by bytes moved.
        launch: share set by launching.
    """

    seconds: float
    compute: float
    memory: float
    launch: float

    @property
    def bound(self) -> str:
        """What sets most of the time: `compute`, `memory` or `launch`."""
        return max(("compute", self.compute), ("memory", self.memory), ("launch", self.launch), key=lambda each: each[1])[0]


def least_seconds(kinds: Kinds, flops: float, bandwidth: float, launch: float) -> Limit:
    """Return the least time of operations on a device.

    Args:
        kinds: (count, flops, bytes) of each kind of operation.
        flops: floating-point operations per second.
        bandwidth: bytes per second.
        launch: seconds for each operation.

    Example:
        >>> least_seconds([(10, 2e9, 1e6)], 1e12, 1e12, 1e-6).bound
        'compute'
    """
    seconds = {"compute": 0.0, "memory": 0.0, "launch": 0.0}
    for count, operations, size in kinds:
        parts = {"compute": operations / flops, "memory": size / bandwidth, "launch": launch}
        slowest = max(parts, key=lambda name: parts[name])
        seconds[slowest] += count * parts[slowest]
    whole = sum(seconds.values())
    return Limit(whole, **{name: value / whole if whole else 0.0 for name, value in seconds.items()})


@dataclass(frozen=True)
class Gain:
    """Hold what a device could give at most.

    Args:
        device: of the table.
        seconds: of a step, compute at the device's roof and all else as it is.
        factor: how many times as fast as now.
        half_factor: the same with bfloat16 or float16 products; None where the device has none.
        bound: what limits the compute there: `compute`, `memory` or `launch`.
    """

    device: Device
    seconds: float
    factor: float
    half_factor: float | None
    bound: str


def gain(device: Device, kinds: Kinds, compute_seconds: float, other_seconds: float) -> Gain:
    """Return what a device could give at most.

    Args:
        kinds: operations of a step.
        compute_seconds: what they take now.
        other_seconds: what else a step takes: waiting, the script between steps.

    Example:
        >>> mine = Device("mine", 8, 500, 10)
        >>> round(gain(mine, [(10, 1e9, 1e6)], 0.1, 0.01).factor, 1)
        10.0
    """
    now = compute_seconds + other_seconds
    limit = least_seconds(kinds, 1e12 * (device.tf32_tflops or device.float32_tflops), 1e9 * device.bandwidth_gb, LAUNCH_SECONDS)
    half = None
    if device.half_tflops is not None:
        # Products in half precision; the rest of the operations, mostly sums and norms, moves the same bytes as now.
        half = least_seconds(kinds, 1e12 * device.half_tflops, 1e9 * device.bandwidth_gb, LAUNCH_SECONDS).seconds
    seconds = limit.seconds + other_seconds
    return Gain(device, seconds, now / seconds, None if half is None else now / (half + other_seconds), limit.bound)
