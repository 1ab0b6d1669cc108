"""Decide which costly probe runs at which step, within the overhead budget.

Three rules. An initial credit: the first steps are measured fully, up to a bounded time. Afterwards each probe has its own
share of the allowance (so that a rare, costly one is not starved by the cheap ones) and runs once its share covers its
running median cost. And samples of a signal grow geometrically sparse, so that long runs do not grow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

CREDIT_STEPS = 20  # ecosystem.md, recommended set: "always the first ~20 steps"
CREDIT_SECONDS = 0.3  # start may cost at most 0.3 s more (issue 2)
# Of the credit, for the first passes over validation rows whenever they come: what generalises is seen nowhere else, and a run of
# tiny steps has no other allowance. About 200 passes over 500 rows.
VALIDATION_SECONDS = 0.05
LATER_CREDIT_SECONDS = 0.01  # of each further training of a run: a full look at two or three steps of a small network
STEP_SECONDS = 30e-6  # DESIGN, promise 3: the larger of 1 % of a step and 30 us
LIGHT_SECONDS = 25e-6  # what the part that runs at every step takes of that (docs/performance.md)
COLD_SECONDS = 80e-6  # what it takes of a long step, which leaves nothing of ours in the processor's caches (docs/performance.md)
# What a probe costs over its own time, for the steps that follow, whose data it drove out of the caches (docs/performance.md).
IN_PLACE = 2.0
_LONGEST_WAIT = 10_000  # steps; a cost that was misjudged is looked at again
DENSITY = 64  # one sample per 1/64 of the steps so far: about 45 samples per doubling of the steps

# Shares of the allowance, starting values: what a rule reads most often gets most.
SHARES = {
    "gradient": 0.2,
    "update": 0.15,
    "loss_call": 0.12,
    "batch": 0.08,
    "hashes": 0.1,
    "zero_rows": 0.08,
    "weights": 0.05,
    "activations": 0.08,
    "validation": 0.08,
    "graph": 0.02,
    "modes": 0.01,
    "coverage": 0.02,
    "memory": 0.01,
}


class Costs:
    """Keep what one probe has cost: in all, and its median over the last runs.

    Example:
        >>> costs = Costs()
        >>> costs.add(3.0)
        >>> costs.median
        3.0
    """

    __slots__ = ("_recent", "median", "spent", "total")

    def __init__(self) -> None:
        self.spent = 0.0  # out of the allowance
        self.total = 0.0
        self.median = 0.0
        self._recent: list[float] = []

    def add(self, seconds: float) -> None:
        """Count one run."""
        self.spent += seconds
        self.total += seconds
        self._recent = [*self._recent[-6:], seconds]
        self.median = sorted(self._recent)[len(self._recent) // 2]


class Budget:
    """Share out the overhead that all costly probes together may cause.

    Args:
        share: of the CPU time, e.g. 0.01.
        clock: CPU seconds of this thread.

    Example:
        >>> budget = Budget(0.01)
        >>> budget.wait("gradient", step=0, elapsed=0.0)
        0
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.thread_time) -> None:
        self.share = share
        self.clock = clock
        self.steps = 0
        self.costs = {name: Costs() for name in SHARES}
        self._began = clock()
        self._credit = CREDIT_SECONDS

    @property
    def spent(self) -> float:
        """CPU seconds that all costly probes took so far, the credit's included."""
        return sum(cost.total for cost in self.costs.values())

    def wait(self, probe: str, step: int, elapsed: float) -> int:
        """Return after how many steps a probe can be afforded; 0 is now.

        Args:
            probe: name in `SHARES`.
            step: of its track.
            elapsed: CPU seconds so far, from `elapsed()`.
        """
        cost = self.costs[probe]
        if step < CREDIT_STEPS and cost.median <= self._credit:
            return 0
        if probe == "validation" and self._credit > 0 and cost.total < VALIDATION_SECONDS:
            return 0
        allowance = self._allowance(elapsed)
        missing = cost.spent + cost.median - SHARES[probe] * allowance
        if missing <= 0:
            return 0
        a_step = SHARES[probe] * allowance / max(1, self.steps)
        return min(_LONGEST_WAIT, 1 + int(missing / a_step)) if a_step > 0 else _LONGEST_WAIT

    def _allowance(self, elapsed: float) -> float:
        of_time = (self.share * elapsed - COLD_SECONDS * self.steps) / IN_PLACE
        of_steps = (self.share / 0.01 * STEP_SECONDS - LIGHT_SECONDS) * self.steps
        return max(of_time, of_steps)

    def overhead(self) -> float:
        """Return the share of this thread's CPU time that watching took; the light part by its usual cost."""
        elapsed = self.elapsed()
        return (self.spent + LIGHT_SECONDS * self.steps) / elapsed if elapsed > 0 else 0.0

    def grant(self) -> None:
        """Give a training that begins later some credit of its own, as much as a short one can bear."""
        if self.share:
            self._credit = max(self._credit, LATER_CREDIT_SECONDS)

    def spend_nothing(self) -> None:
        """Let no costly probe run any more."""
        self.share, self._credit = 0.0, -1.0

    def elapsed(self) -> float:
        """Return CPU seconds of this thread since the start."""
        return self.clock() - self._began

    def pay(self, probe: str, seconds: float, step: int) -> None:
        """Count what a probe has cost; the credit of the first steps pays for itself."""
        cost = self.costs[probe]
        cost.add(seconds)
        if step < CREDIT_STEPS:
            self._credit -= seconds
            cost.spent -= seconds


class Schedule:
    """Say when each probe of one track is due.

    Args:
        budget: shared by all tracks.
        probes: names in `SHARES`.

    Example:
        >>> schedule = Schedule(Budget(0.01), ("gradient",))
        >>> [step for step in range(4) if schedule.due("gradient", step)]
        [0, 1, 2, 3]
    """

    __slots__ = ("_base", "_early", "_next", "_random", "budget", "earliest")

    def __init__(self, budget: Budget, probes: tuple[str, ...]) -> None:
        self.budget = budget
        self.earliest = self._base = 0
        self._next = dict.fromkeys(probes, 0)
        self._early = dict.fromkeys(probes, 0)  # by how many steps a probe may come before it is due, to share a step with another
        self._random = random.Random(0)  # its own state: the script's is not touched

    def due(self, probe: str, step: int, elapsed: float | None = None) -> bool:
        """Tell whether a probe is due at a step and affordable; where it is, it is not due again soon."""
        early = self._early[probe]
        if step < self._next[probe] - early:
            return False
        age = step - self._base
        wait = self.budget.wait(probe, age, self.budget.elapsed() if elapsed is None else elapsed)
        if wait > early:
            self._next[probe] = step + wait
            self._early[probe] = wait // 4
            return False
        gap = 1 if age < CREDIT_STEPS else max(1, age // DENSITY)
        self._early[probe] = gap // 4
        # Two optimisers that alternate would always meet the same one of an even gap.
        self._next[probe] = step + gap + (self._random.randrange(2) if gap > 1 else 0)
        return True

    def plan(self, step: int) -> set[str]:
        """Return all probes that are due at a step."""
        elapsed = self.budget.elapsed()
        due = {probe for probe in self._next if self.due(probe, step, elapsed)}
        self.earliest = min(self._next.values())
        return due

    def restart(self, step: int) -> None:
        """Begin again, as at the first steps: a new training has begun at this step."""
        self._base = step
        self.rush()

    def rush(self) -> None:
        """Make every probe due at once, as after a jump of the loss."""
        self._next = dict.fromkeys(self._next, 0)
        self._early = dict.fromkeys(self._next, 0)
        self.earliest = 0
