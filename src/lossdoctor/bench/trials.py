"""Confirm planted faults, and try every treatment on healthy scripts: how often are trials right?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from lossdoctor.bench.cures import cures
from lossdoctor.bench.matrix import Row, watch
from lossdoctor.bench.score import Share
from lossdoctor.core.diagnosis import HEALTHY, Finding
from lossdoctor.core.fault import Fault, Treatment, faults
from lossdoctor.core.run import Run
from lossdoctor.core.store import load_run
from lossdoctor.diagnose import diagnose
from lossdoctor.trials.compare import CONFIRMED
from lossdoctor.trials.confirm import Candidate, Confirmer
from lossdoctor.trials.parameters import NoTreatment, fitted

NOT_NAMED = "not named"
PLACEBO = "placebo"


@dataclass(frozen=True)
class Tried:
    """Hold one trial of the bench.

    Args:
        planted: slug, or `healthy`.
        fault: slug whose treatment was tried, or `placebo`.
        verdict: of the trial; `not named` where the planted fault was not found, so that nothing was tried.
        effect: mean over the pairs; NaN where there was none.
        seconds: of the trial.
        run_seconds: of the watched run.

    Example:
        >>> Tried("digits", HEALTHY, 0, PLACEBO, "refuted", 0.01, 20.0, 8.0).verdict
        'refuted'
    """

    recipe: str
    planted: str
    seed: int
    fault: str
    verdict: str
    effect: float
    seconds: float
    run_seconds: float
    reason: str = ""


def try_rows(rows: Sequence[Row]) -> Iterator[Tried]:
    """Run rows one after another: a sick one's fault is confirmed, on a healthy one every treatment is tried."""
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch)
            (folder / "train.py").write_text(row.source, encoding="utf-8")
            began = time.perf_counter()
            failure = watch(folder, row.options)
            seconds = time.perf_counter() - began
            runs = sorted((folder / "runs").glob("*/run.json"))
            if not runs:
                yield Tried(row.recipe, row.planted, row.seed, row.planted, "failed", float("nan"), 0.0, seconds, failure)
                continue
            yield from _tries(row, runs[-1].parent, seconds)


def _tries(row: Row, folder: Path, seconds: float) -> Iterator[Tried]:
    run = load_run(folder)
    confirmer = Confirmer(folder, run)
    for slug, candidate in _candidates(row, run, confirmer):
        if candidate is None:
            yield Tried(row.recipe, row.planted, row.seed, slug, NOT_NAMED, float("nan"), 0.0, seconds)
            continue
        trial = confirmer.ask(candidate, ())
        effect = trial.effect.mean if trial.effect else float("nan")
        yield Tried(row.recipe, row.planted, row.seed, slug, trial.verdict, effect, trial.seconds, seconds, trial.reason)


def _candidates(row: Row, run: Run, confirmer: Confirmer) -> list[tuple[str, Candidate | None]]:
    if row.planted in cures():
        return [(row.planted, _cure(row.planted, run))]
    if row.planted != HEALTHY:
        present = [each for each in diagnose(run).present if each.slug in row.accepted]
        found = confirmer.candidates(present[:1])
        return [(row.planted, found[0] if found else None)]
    offered = [(slug, _offered(fault, fault.treatment, run)) for slug, fault in faults().items() if fault.treatment is not None]
    offered += [(name, _cure(name, run)) for name in cures()]
    placebo = faults()["zero-grad-missing"]
    return [(slug, each) for slug, each in offered if each] + [(PLACEBO, _offered(placebo, Treatment(PLACEBO), run))]


def _cure(name: str, run: Run) -> Candidate | None:
    """Return what would be tried if there were a fault with this treatment."""
    fault = replace(faults()["zero-grad-missing"], slug=name, treatment=cures()[name].treatment)
    return _offered(fault, cures()[name].treatment, run)


def _offered(fault: Fault, treatment: Treatment, run: Run) -> Candidate | None:
    """Return what would be tried if a fault were found in a run; None where its treatment does not fit the run."""
    finding = Finding(fault.code, fault.slug, fault.title, fault.family)
    try:
        return Candidate(finding, fault, fitted(treatment, finding, run.trainings[0]))
    except NoTreatment:
        return None


def table(tried: Sequence[Tried]) -> Table:
    """Build the table: of each planted fault how many were confirmed, and of each treatment how many on healthy scripts."""
    made = Table(title="trials", title_justify="left")
    for column in ("planted", "treatment of", "confirmed, 95 % interval", "other verdicts", "trial / run, median"):
        made.add_column(column)
    for planted, fault in dict.fromkeys((each.planted, each.fault) for each in tried):
        group = [each for each in tried if (each.planted, each.fault) == (planted, fault) and each.verdict != NOT_NAMED]
        verdicts = [each.verdict for each in group]
        others = ", ".join(f"{name} {verdicts.count(name)}" for name in dict.fromkeys(verdicts) if name != CONFIRMED)
        ratios = sorted(each.seconds / each.run_seconds for each in group)
        ratio = f"{ratios[len(ratios) // 2]:.1f}" if ratios else ""
        made.add_row(planted, fault, str(Share.of(verdicts.count(CONFIRMED), len(group))), others, ratio)
    return made


def as_json(tried: Sequence[Tried]) -> dict[str, Any]:
    """Return all trials as one JSON value."""
    plain = [{**asdict(each), "effect": each.effect if each.effect == each.effect else None} for each in tried]
    return {"schema": "lossdoctor/bench-trials/1", "trials": plain}
