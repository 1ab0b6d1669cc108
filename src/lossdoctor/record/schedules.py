"""Know the learning-rate schedulers of a process: what each is set to, how often it was stepped, and what a plateau was told."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lossdoctor.record.facts import simple

if TYPE_CHECKING:
    from lossdoctor.record.optimizers import Known
    from lossdoctor.record.tracks import Track

# What says how long a schedule is, and what it does at its end; names as torch's own classes hold them.
_SETTINGS = (
    "T_max", "T_0", "total_steps", "total_iters", "step_size", "milestones", "gamma", "eta_min", "start_factor", "end_factor",
    "mode", "factor", "patience", "threshold", "threshold_mode", "cooldown",
)  # fmt: skip
MOST_METRICS = 2048  # calls of a plateau that are kept; one a batch needs no more to be recognised
MOST = 64  # schedulers of a process; a sweep makes one a training


class Made:
    """Remember one scheduler, also when it is gone."""

    __slots__ = ("calls", "metrics", "optimizer", "part", "ref", "settings")

    def __init__(self, scheduler: Any, optimizer: Known) -> None:
        self.ref = weakref.ref(scheduler)
        self.optimizer = optimizer
        self.calls = 0
        self.part = False  # of a sequence or a chain, which steps it
        self.metrics: list[float] = []
        self.settings: dict[str, Any] = {}

    def read(self, scheduler: Any) -> None:
        """Take the settings; done anew where a class is built on another, whose constructor ends first."""
        held = vars(scheduler)
        self.settings = {name: simple(_plain(held[name])) for name in _SETTINGS if name in held}
        self.settings["name"] = type(scheduler).__name__
        self.calls = 0  # the step that a constructor makes is none of the script's


class Schedules:
    """Remember the schedulers of a process."""

    def __init__(self) -> None:
        self._made: list[Made] = []
        self._alive: dict[int, Made] = {}

    def made(self, scheduler: Any, optimizer: Known) -> None:
        """Note that a scheduler of an optimiser exists, and which others it is made of."""
        known = self._of(scheduler)
        if known is None:
            if len(self._made) >= MOST:
                return
            known = self._alive[id(scheduler)] = Made(scheduler, optimizer)
            self._made.append(known)
        known.read(scheduler)
        for part in getattr(scheduler, "_schedulers", ()):
            inner = self._of(part)
            if inner is not None:
                inner.part = True

    def stepped(self, scheduler: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Count a step, and keep the metric that a plateau is given."""
        known = self._of(scheduler)
        if known is None:
            return
        known.calls += 1
        if "patience" in known.settings and len(known.metrics) < MOST_METRICS:
            metric = given[0] if given else named.get("metrics")
            if not isinstance(metric, Tensor) or metric.is_cpu:  # no waiting for a device
                known.metrics.append(float(metric))  # type: ignore[arg-type]

    def describe(self, track: Track) -> list[dict[str, Any]]:
        """Return the schedulers that turn, or were meant to turn, the rate of a track.

        Args:
            track: an optimiser's; a scheduler is `stray` where its own optimiser never stepped and holds most of what this one does.
        """
        found = []
        for known in self._made:
            optimizer = known.optimizer
            stray = optimizer.track is None and len(optimizer.held & track.identities) * 2 > len(track.identities)
            if (stray or optimizer.track is track) and not known.part:
                found.append({**known.settings, "calls": known.calls, "stray": stray, "metrics": known.metrics})
        return found

    def _of(self, scheduler: Any) -> Made | None:
        known = self._alive.get(id(scheduler))
        return known if known is not None and known.ref() is scheduler else None


def _plain(value: Any) -> Any:
    """Return milestones, which torch keeps as a counter, as a list."""
    return sorted(value.elements()) if hasattr(value, "elements") else value
