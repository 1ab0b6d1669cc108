"""A run: what was recorded of one training process, as plain values.

A `Run` holds trainings; a `Training` is a stretch of learning with its own signals and facts. Signals are
`Series`: values over steps. Everything here is data: nothing reads files (`core/store.py` does) and nothing judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lossdoctor.core.errors import SignalMissing

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """Hold the values of one signal over steps.

    Args:
        steps: shape (n,), the step at which each value was taken, increasing.
        values: shape (n,) for a scalar signal, (n, width) for one value per parameter or layer.
        names: shape (width,), what each column of a wide signal belongs to; empty for a scalar.

    Example:
        >>> Series.of([3.0, 2.0]).last
        2.0
    """

    steps: Integers
    values: Floats
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Any], steps: Sequence[int] | None = None, names: Sequence[str] = ()) -> Series:
        """Build a series from plain lists; steps count from 0 where they are left out."""
        taken = np.arange(len(values)) if steps is None else np.asarray(steps)
        return cls(taken.astype(np.int64), np.asarray(values, dtype=np.float64), tuple(names))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def first(self) -> float:
        """The first value of a scalar series."""
        return float(self.values[0])

    @property
    def last(self) -> float:
        """The last value of a scalar series."""
        return float(self.values[-1])

    def finite(self) -> Series:
        """Keep the steps at which a scalar series is finite."""
        keep = np.isfinite(self.values)
        if keep.all():
            return self
        return Series(self.steps[keep], self.values[keep], self.names)

    def between(self, start: int, stop: int) -> Series:
        """Keep the steps in [start, stop)."""
        keep = (self.steps >= start) & (self.steps < stop)
        return Series(self.steps[keep], self.values[keep], self.names)


@dataclass(frozen=True)
class Row:
    """Hold one structured measurement: the step at which it was taken and its fields.

    Example:
        >>> Row(4, {"rows": 64})["rows"]
        64
    """

    step: int
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default where it was not recorded."""
        return self.fields.get(name, default)


@dataclass(frozen=True)
class Location:
    """Name a place in the user's source.

    Example:
        >>> str(Location("train.py", 12))
        'train.py:12'
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Experiment:
    """Hold the result of one active measurement.

    Args:
        name: the experiment's name.
        status: `done`, or `unknown` with the reason in the facts.
        seconds: what it took.
        facts: what it found, by name.

    Example:
        >>> Experiment("memorise", "done", 1.2, {"final_loss": 0.004}).facts["final_loss"]
        0.004
    """

    name: str
    status: str
    seconds: float
    facts: Mapping[str, Any]


@dataclass
class Training:
    """Hold one training: its signals, its structured rows and its facts.

    Args:
        index: position in the run, from 0.
        signals: scalar or wide series by signal name.
        rows: structured measurements by signal name.
        facts: what holds for the whole training, by name.
        roles: one training per optimiser where several alternate on disjoint parameters, else empty.
        phase_of: index of the earlier training whose parameters this one moves on, or None.
        experiments: results of active measurements by name.
        run_facts: the facts of the run that holds this training.

    Example:
        >>> Training(signals={"loss": Series.of([2.3, 0.1])}).series("loss").last
        0.1
    """

    index: int = 0
    signals: dict[str, Series] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    roles: list[Training] = field(default_factory=list)
    phase_of: int | None = None
    experiments: dict[str, Experiment] = field(default_factory=dict)
    run_facts: Mapping[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Tell whether a signal, a structured row, a fact or a finished experiment of this name was recorded."""
        done = name in self.experiments and self.experiments[name].status == "done"
        return len(self.signals.get(name, ())) > 0 or bool(self.rows.get(name)) or name in self.facts or done

    def series(self, name: str) -> Series:
        """Return a signal; raise `SignalMissing` where it was not recorded."""
        found = self.signals.get(name)
        if found is None or len(found) == 0:
            raise SignalMissing(name)
        return found

    def table(self, name: str) -> list[Row]:
        """Return the structured rows of a signal; raise `SignalMissing` where there are none."""
        found = self.rows.get(name)
        if not found:
            raise SignalMissing(name)
        return found

    def fact(self, name: str, default: Any = None) -> Any:
        """Return a fact, or the default where it was not recorded."""
        return self.facts.get(name, default)

    def experiment(self, name: str) -> Mapping[str, Any]:
        """Return the facts of a finished experiment; raise `SignalMissing` where it was not done."""
        found = self.experiments.get(name)
        if found is None or found.status != "done":
            raise SignalMissing(name)
        return found.facts

    def found(self, name: str) -> Mapping[str, Any]:
        """Return the facts of a finished experiment; empty where it was not done.

        Example:
            >>> Training().found("memorise")
            {}
        """
        done = self.experiments.get(name)
        return done.facts if done is not None and done.status == "done" else {}

    def where(self, place: str) -> Location | None:
        """Return where in the user's source `loss`, `backward`, `step`, `forward` or `loader` stands, if known."""
        found = self.facts.get("where", {}).get(place)
        return Location(found[0], int(found[1])) if found else None

    @property
    def steps(self) -> int:
        """How many steps were recorded or counted."""
        counted = self.facts.get("steps")
        if counted is not None:
            return int(counted)
        loss = self.signals.get("loss")
        return int(loss.steps[-1]) + 1 if loss is not None and len(loss) else 0


@dataclass
class Run:
    """Hold the record of one training process.

    Args:
        facts: what holds for the whole process: script, versions, how it ended, seconds.
        trainings: in the order in which they began.
        notes: what went wrong in our own measuring, one sentence each.

    Example:
        >>> Run(trainings=[Training()]).trainings[0].index
        0
    """

    facts: dict[str, Any] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
