"""A made accelerator: a host that starts operations, and a device that does them one after the other. No clock runs.

It stands in for a real one where there is none: what a script's waits cost is worked out operation by operation, with and without them,
and held against what the rules say of the figures that a recorder could take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lossdoctor.core.run import Series, Training
from lossdoctor.derive.timeline import Span, busy_seconds, exposed_seconds

Place = tuple[str, int]


@dataclass(frozen=True)
class Operation:
    """Hold one operation of a script.

    Args:
        host: seconds of the host to start it, or to do it where it has no part on the device.
        device: seconds of the device.
        queue: of the device: those of one queue follow one another, two queues work side by side.
        waits: whether the host stands still until the device has done it: its value is read.
        place: line of the script that reads it.
    """

    host: float
    device: float = 0.0
    queue: str = "compute"
    waits: bool = False
    place: Place | None = None


@dataclass
class Timeline:
    """Hold what happened.

    Args:
        ends: when each step ended, for the host.
        spans: by queue, when the device was at work.
        waited: by line, seconds for which the host stood still.
        times: by line, how often.
    """

    ends: list[float] = field(default_factory=list)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    waited: dict[Place, float] = field(default_factory=dict)
    times: Counter[Place] = field(default_factory=Counter)

    @property
    def step_seconds(self) -> float:
        """Seconds of a step once the device has as much to do as it will ever have."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half]) / (len(self.ends) - 1 - half)

    @property
    def busy_share(self) -> float:
        """Share of the time in which the device was at work."""
        return busy_seconds(span for spans in self.spans.values() for span in spans) / self.ends[-1]

    def exposed(self, queue: str) -> float:
        """Return the seconds of a queue that the work of the others does not hide."""
        others = [span for name, spans in self.spans.items() if name != queue for span in spans]
        return exposed_seconds(self.spans.get(queue, []), others)

    def training(self) -> Training:
        """Return what a recorder would have taken: ends of steps, waits by line, what the device took of a step."""
        steps = len(self.ends)
        waits = [[*place, self.times[place] / steps, seconds / steps] for place, seconds in self.waited.items()]
        busy = busy_seconds(self.spans.get("compute", [])) / steps
        facts = {"device": "made:0", "waits": waits, "device_seconds": busy}
        return Training(signals={"wall": Series.of(self.ends)}, run_facts=facts)


MOST_QUEUED = 1024  # operations that wait for the device before the host is held up, as CUDA's queue holds


def play(step: Sequence[Operation], steps: int = 200) -> Timeline:
    """Let a host start the operations of so many equal steps; once the queue is full, whoever is slower decides.

    Example:
        >>> play([Operation(1.0, 3.0)], 4000).step_seconds
        3.0
    """
    found, now = Timeline(), 0.0
    free: dict[str, float] = {}
    ended: list[float] = []  # of all operations on the device, in the order in which they were started
    for _ in range(steps):
        for operation in step:
            now += operation.host
            if operation.device or operation.waits:
                if len(ended) >= MOST_QUEUED:
                    now = max(now, ended[-MOST_QUEUED])
                began = max(now, free.get(operation.queue, 0.0))
                free[operation.queue] = began + operation.device
                found.spans.setdefault(operation.queue, []).append((began, free[operation.queue]))
                ended.append(free[operation.queue])
            if operation.waits:
                place = operation.place or ("train.py", 0)
                found.waited[place] = found.waited.get(place, 0.0) + max(0.0, free[operation.queue] - now)
                found.times[place] += 1
                now = max(now, free[operation.queue])
        found.ends.append(now)
    return found


def without(step: Sequence[Operation]) -> list[Operation]:
    """Return the operations with nobody waiting for them."""
    return [replace(operation, waits=False) for operation in step]


def network(layers: int, kernel: float, host: float = 6e-6) -> Iterator[Operation]:
    """Return the operations of a training step: loader, forward, backward, optimiser.

    Args:
        layers: of the network; three kernels each in forward, six in backward, one in the optimiser.
        kernel: seconds of a kernel.
        host: seconds to start one.
    """
    yield Operation(200e-6)  # the loop, the loader
    for count in (3 * layers, 6 * layers, layers):
        yield from (Operation(host, kernel) for _ in range(count))


def reads(step: Sequence[Operation], places: Sequence[tuple[int, Place]]) -> list[Operation]:
    """Put reads of a value behind some operations of a step.

    Args:
        places: behind the how-manieth operation, and the line that reads.
    """
    by_index: dict[int, list[Place]] = {}
    for index, place in places:
        by_index.setdefault(index, []).append(place)
    read: list[Operation] = []
    for index, operation in enumerate(step):
        read.append(operation)
        read.extend(Operation(10e-6, 2e-6, waits=True, place=place) for place in by_index.get(index, []))
    return read
