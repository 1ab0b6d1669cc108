"""Plant inefficiencies and mend them: is the first cause right, and does mending gain what the doctor said it would?"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from lossdoctor.bench.accelerator import Operation, network, play, reads, without
from lossdoctor.bench.edit import find_recipe
from lossdoctor.bench.inefficiencies import Inefficiency
from lossdoctor.bench.matrix import watch
from lossdoctor.bench.score import Share
from lossdoctor.core.fault import Level, find_fault
from lossdoctor.core.run import Run, Series
from lossdoctor.core.store import load_run
from lossdoctor.diagnose.across import main_training
from lossdoctor.diagnose.engine import judge
from lossdoctor.launch.child import repeat

# A prediction counts where it is as near as this to the gain that was measured: relative, or a share of the step (issue 7).
NEAR, NEAR_SHARE = 0.2, 0.03
EPOCHS = 6
SIMULATED = "item-each-step"  # what only an accelerator shows, on a made one
PAIRS = 2  # of runs that are timed, one after the other
TIMED_SECONDS, LIMIT_SECONDS = 5.0, 120.0  # of training in each; and until a run is given up
WARM = 5  # steps in which caches fill
# Faults that cost time or memory and nothing else; what is said of others is not asked here.
FAMILIES = ("PRF", "MEM")
OTHERS = ("input-bottleneck", "grad-in-eval", "batch-too-small", "hidden-state-not-detached")


@dataclass(frozen=True)
class Gained:
    """Hold one row.

    Args:
        planted: name of the inefficiency.
        said: slug of the first present cause that costs time or memory; empty where there is none.
        predicted: share of a row's time that mending was said to save; 0 where nothing was said.
        measured: share that it saved; NaN where it was not measured.
        memory: bytes that mending was said to save.
        memory_measured: difference of the largest resident memory of both.

    Example:
        >>> Gained("leak", "severe", "digits", 0, ("graph-retained",), "graph-retained", 0.0, 0.01).near
        True
    """

    planted: str
    level: str
    recipe: str
    seed: int
    accepted: tuple[str, ...]
    said: str = ""
    predicted: float = 0.0
    measured: float = math.nan
    memory: float = 0.0
    memory_measured: float = math.nan
    seconds: float = 0.0
    why: str = ""

    @property
    def named(self) -> bool:
        """Tell whether the first cause is the one that was planted."""
        return self.said in self.accepted

    @property
    def near(self) -> bool:
        """Tell whether the prediction is near enough to what was measured."""
        return abs(self.predicted - self.measured) <= max(NEAR_SHARE, NEAR * abs(self.measured))


def gained_rows(planted: Sequence[Inefficiency], levels: Sequence[Level], seeds: Sequence[int], options: Sequence[str]) -> Iterator[Gained]:
    """Run each sick script and its mended twin one after the other, for they are compared by the clock."""
    for each in planted:
        for level in levels:
            for seed in seeds:
                yield gained(each, level, seed, options)


def gained(inefficiency: Inefficiency, level: Level, seed: int, options: Sequence[str]) -> Gained:
    """Run a sick script, then its mended twin, and compare what a row takes."""
    began = time.perf_counter()
    recipe = find_recipe(inefficiency.recipe).with_constant("SEED", seed).with_constant("EPOCHS", EPOCHS)
    plant = next(plant for plant in inefficiency.condition.plants if plant.level == level and recipe.takes(plant))
    sick, mended = recipe.planted(plant).source, inefficiency.mended(recipe, level).source
    report, watched, why = _run(sick, options)
    first = _first(report)
    gain: Mapping[str, float] = (first or {}).get("gain") or {}
    return Gained(
        inefficiency.condition.name,
        level,
        recipe.name,
        seed,
        inefficiency.condition.accepted,
        said=first["slug"] if first else "",
        predicted=gain.get("time", 0.0),
        measured=_saved([(row_seconds(timed(mended)), row_seconds(timed(sick))) for _ in range(PAIRS)]),
        memory=gain.get("memory", 0.0),
        memory_measured=most_memory(watched) - most_memory(_run(mended, ("--workup", "none"))[1]) if gain.get("memory") else math.nan,
        seconds=time.perf_counter() - began,
        why=why,
    )


def simulated(level: Level) -> Gained:
    """Judge a made accelerator on which a script reads a value now and then, and play it again without."""
    began = time.perf_counter()
    step, places = WAITING[level]
    sick = play(reads(step, places))
    finding = judge(find_fault("host-sync"), sick.training())
    mended = play(without(reads(step, places)))
    return Gained(
        SIMULATED,
        level,
        "made accelerator",
        0,
        ("host-sync",),
        said=finding.slug if finding.status == "present" else "",
        predicted=finding.gain.get("time", 0.0),
        measured=1 - mended.step_seconds / sick.step_seconds,
        seconds=time.perf_counter() - began,
    )


# A loss that is read after each step; one that is read before backward as well; a value behind each layer.
WAITING: dict[Level, tuple[list[Operation], list[tuple[int, tuple[str, int]]]]] = {
    "mild": (list(network(12, 12e-6)), [(120, ("train.py", 31))]),
    "middle": (list(network(12, 10e-6)), [(36, ("train.py", 28)), (120, ("train.py", 31))]),
    "severe": (list(network(12, 8e-6)), [(3 * layer, ("model.py", 17)) for layer in range(1, 13)] + [(120, ("train.py", 31))]),
}


def _run(source: str, options: Sequence[str]) -> tuple[dict[str, Any], Run, str]:
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(source, encoding="utf-8")
        why = watch(folder, options)
        runs = sorted((folder / "runs").glob("*/run.json"))
        run = load_run(runs[-1].parent) if runs else Run()
        try:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {"findings": []}
        return report, run, why


def _first(report: Mapping[str, Any]) -> dict[str, Any] | None:
    present = [each for each in report["findings"] if each["status"] == "present"]
    return next((dict(each) for each in present if each["family"] in FAMILIES or each["slug"] in OTHERS), None)


def _saved(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of what mending saved in each pair of runs, the mended one first."""
    known = [1 - mended / sick for mended, sick in pairs if sick > 0 and mended == mended]
    return float(np.median(known)) if known else math.nan


def timed(source: str) -> Run:
    """Run a script for some seconds with hardly anything recorded but when its steps ended, and how long its thread waited for a core."""
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as kept:
        folder, scratch = Path(kept) / "script", Path(kept) / "scratch"
        folder.mkdir()
        scratch.mkdir()
        (folder / "train.py").write_text(source, encoding="utf-8")
        private = {"argv": ["train.py"], "module": False, "cwd": str(folder), "python": sys.executable}
        private["environ"] = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        (folder / "private.json").write_text(json.dumps(private))
        stop = {"name": "stop", "parameters": {"seconds": TIMED_SECONDS}}
        ended = repeat(folder, scratch, [stop], LIMIT_SECONDS, treats="lossdoctor.machine.levers")
        return load_run(ended.folder) if ended.folder is not None else Run()


def row_seconds(run: Run) -> float:
    """Return what a row of training takes, its part of the validation included; NaN where that is not known.

    The time in which the thread waited for a core that other work held is left out, where the system tells it.
    """
    training = main_training(run.trainings)
    wall, rows = (training.signals.get(name, Series.of([])).finite() for name in ("wall", "batch_rows")) if training else (None, None)
    if training is None or wall is None or rows is None or len(wall) <= WARM + 1 or not len(rows):
        return math.nan
    queued = run.facts.get("queued") or []
    held = queued[-1] - queued[WARM] if len(queued) == len(wall) else 0.0
    seconds = (wall.last - wall.values[WARM] - held) / float(wall.steps[-1] - wall.steps[WARM])
    return float(max(0.0, seconds) / rows.values.mean())


def most_memory(run: Run) -> float:
    """Return the largest resident memory that was sampled, in bytes; NaN where there is none."""
    seen = [training.signals["memory"].values.max() for training in run.trainings if "memory" in training.signals]
    return float(max(seen)) if seen else math.nan


def table(rows: Sequence[Gained]) -> Table:
    """Build the table of all rows, with both shares in its title."""
    named, near = Share.of(sum(row.named for row in rows), len(rows)), Share.of(sum(row.near for row in rows), len(rows))
    made = Table(title=f"first cause right {named}; gain as predicted {near}", title_justify="left")
    for column in ("planted", "level", "recipe", "first cause", "gain predicted", "measured", "MiB predicted", "measured", ""):
        made.add_column(column)
    for row in rows:
        memory = (f"{row.memory / 2**20:.0f}", f"{row.memory_measured / 2**20:.0f}")
        flaw = " ".join(word for word, right in (("cause", row.named), ("gain", row.near)) if not right)
        said = row.said or "none"
        made.add_row(row.planted, row.level, row.recipe, said, f"{row.predicted:.2f}", f"{row.measured:.2f}", *memory, flaw)
    return made


def as_json(rows: Sequence[Gained]) -> dict[str, Any]:
    """Return all rows as one JSON value."""
    finite = [{name: value if value == value else None for name, value in asdict(row).items()} for row in rows]
    return {
        "schema": "lossdoctor/bench-speed/1",
        "rows": [plain | {"named": row.named, "near": row.near} for plain, row in zip(finite, rows, strict=True)],
    }
