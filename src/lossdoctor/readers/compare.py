"""Set runs side by side: which learns best, which fails, and in which settings they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.run import Run, Series
from lossdoctor.derive.smooth import tail
from lossdoctor.derive.unseen import field_series
from lossdoctor.readers.judge import badness, judge


@dataclass
class Compared:
    """Hold one run of a comparison.

    Args:
        name: as the user knows it.
        run, diagnosis: what was read and found.
        steps, loss, validation: its length, its last loss, its best validation loss; None where not logged.
        settings: what is known of its settings.
    """

    name: str
    run: Run
    diagnosis: Diagnosis
    steps: int
    loss: float | None
    validation: float | None
    settings: Mapping[str, Any]

    def summary(self) -> dict[str, Any]:
        """Return its line as plain values."""
        return {
            "name": self.name,
            "verdict": self.diagnosis.verdict,
            "steps": self.steps,
            "last_loss": self.loss,
            "best_validation_loss": self.validation,
            "trainings": len(self.run.trainings),
        }


def compare(runs: Sequence[tuple[str, Run]], *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Compared]:
    """Diagnose runs and order them, the worst first.

    Args:
        runs: pairs of name and run.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.
    """
    with np.errstate(all="ignore"):  # a log may hold any number
        made = [_compared(name, run, judge(run, select=select, ignore=ignore)) for name, run in runs]
    return sorted(made, key=lambda each: (*(-figure for figure in badness(each.diagnosis)), -_height(each), each.name))


def _height(run: Compared) -> float:
    """Return the loss by which runs of one verdict are ordered, one that is no number as the highest."""
    height = run.validation or run.loss or 0.0
    return math.inf if math.isnan(height) else height


def _compared(name: str, run: Run, diagnosis: Diagnosis) -> Compared:
    longest = max(run.trainings, key=lambda training: training.steps, default=None)
    if longest is None:
        return Compared(name, run, diagnosis, 0, None, None, {})
    loss = longest.signals.get("loss", Series.of([]))
    held_out = field_series(longest.rows.get("validation", []), "loss").finite()
    last = _rounded(float(np.median(tail(loss).values))) if len(loss) else None
    best = _rounded(float(held_out.values.min())) if len(held_out) else None
    settings = longest.facts.get("settings") or {}
    return Compared(name, run, diagnosis, longest.steps, last, best, settings if isinstance(settings, Mapping) else {})


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def differences(runs: Sequence[Compared]) -> dict[str, list[Any]]:
    """Return the settings in which the runs differ, of those that most of them tell: name to one value each, None where not told.

    Example:
        >>> differences([])
        {}
    """
    names = {
        name
        for each in runs
        for name, value in each.settings.items()
        if isinstance(value, bool | int | float | str) and not name.startswith("_")
    }
    told = {name: [each.settings.get(name) for each in runs] for name in sorted(names)}
    most = {name: values for name, values in told.items() if 2 * sum(value is not None for value in values) > len(runs)}
    return {name: values for name, values in most.items() if len({str(value) for value in values}) > 1}


def best(runs: Sequence[Compared]) -> Compared | None:
    """Return the run that learnt best: the lowest best validation loss among those that tell one, else the lowest last loss.

    Runs whose losses have other names, or one beyond a hundred times another, cannot be compared; then None.
    """
    if len({str(each.run.trainings[0].facts.get("log_loss")) for each in runs if each.run.trainings}) > 1:
        return None
    for figure in ("validation", "loss"):
        told = [(getattr(each, figure), each) for each in runs]
        known = [(value, each) for value, each in told if value is not None and math.isfinite(value)]
        if len(known) == len(runs) > 0 or (figure == "loss" and known):
            values = [value for value, _ in known]
            if min(values) > 0 and max(values) > 100 * min(values) and figure == "validation":
                return None
            return min(known, key=lambda pair: pair[0])[1]
    return None


def report(compared: Sequence[Compared]) -> Diagnosis:
    """Return the diagnosis of the worst run; of several, with the line of each, their differences and the best.

    Args:
        compared: at least one, in the order of `compare`.
    """
    diagnosis = compared[0].diagnosis
    if len(compared) > 1:
        learns = best(compared)
        diagnosis.run["runs"] = [each.summary() for each in compared]
        diagnosis.run["differences"] = differences(compared)
        diagnosis.run["best"] = learns.name if learns else None
    return diagnosis
