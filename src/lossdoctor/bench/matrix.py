"""Run the rows of the bench: each is a recipe, made sick or not, watched by the real command in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lossdoctor.bench.conditions import Condition
from lossdoctor.bench.edit import Recipe
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.fault import Level, Plant, faults
from lossdoctor.core.store import load_run
from lossdoctor.diagnose import engine

# A row takes about ten seconds on a core of its own, minutes on a busy machine; one that takes this long hangs.
LIMIT_SECONDS = 1200.0
# The commands that run at this moment, to be ended when the bench is.
_RUNNING: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Row:
    """Hold what one row of the bench runs, as plain values that another process can take.

    Args:
        recipe: name of the recipe.
        planted: name of the condition.
        accepted: verdicts that name it.
        level: severity of the plant; empty where nothing is planted.
        seed: the script's seed.
        source: the edited script.
        options: further options of `lossdoctor run`.
        beside: findings that name a second fault, where one was planted.

    Example:
        >>> Row("digits", "healthy", ("healthy",), "", 0, "print()").seed
        0
    """

    recipe: str
    planted: str
    accepted: tuple[str, ...]
    level: str
    seed: int
    source: str = field(repr=False)
    options: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Hold what the doctor said of one row.

    Args:
        row: what was run.
        verdict: slug of the verdict, or `failed` where the command gave no report.
        said: present findings as (slug, severity, probability), in the order of the report.
        suspected: suspected findings as (slug, probability).
        strengths: strength of every fault, by slug, before calibration; 0 where its rule said nothing.
        seconds: wall time of the row.
        why: the verdict's first evidence, or what went wrong.

    Example:
        >>> Outcome(Row("digits", "healthy", ("healthy",), "", 0, ""), verdict="healthy").named
        True
    """

    row: Row
    verdict: str
    said: tuple[tuple[str, str, float], ...] = ()
    suspected: tuple[tuple[str, float], ...] = ()
    strengths: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    why: str = ""

    @property
    def named(self) -> bool:
        """Tell whether the verdict names what was planted; of two faults, whether both are among the findings."""
        if not self.row.beside:
            return self.verdict in self.row.accepted
        present = {slug for slug, _, _ in self.said}
        return bool(present & set(self.row.accepted)) and bool(present & set(self.row.beside))

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON: what was run without its source, what was said, and `named`."""
        outcome, row = asdict(self), asdict(self.row)
        del outcome["row"], row["source"]
        return row | outcome | {"named": self.named}


def rows(
    recipes: Sequence[Recipe], conditions: Sequence[Condition], levels: Sequence[Level], seeds: Sequence[int], options: Sequence[str] = ()
) -> list[Row]:
    """Lay out the rows: every condition on every recipe that one of its plants is meant for; `healthy` once per seed.

    Args:
        recipes: healthy scripts.
        conditions: what is planted.
        levels: severities of the plants.
        seeds: seeds of the scripts.
        options: further options of `lossdoctor run` for every row.

    Raises:
        LossdoctorError: where a plant does not match its recipe exactly once.
    """
    laid: list[Row] = []
    for recipe in recipes:
        for condition in conditions:
            beside = condition.beside.accepted if condition.beside else ()
            for level, plants in _plants(recipe, condition, levels):
                sick = recipe
                for plant in plants:
                    sick = sick.planted(plant)
                for seed in seeds:
                    source = sick.with_constant("SEED", seed).source
                    laid.append(Row(recipe.name, condition.name, condition.accepted, level, seed, source, tuple(options), beside))
    return laid


def _plants(recipe: Recipe, condition: Condition, levels: Sequence[Level]) -> Iterator[tuple[str, tuple[Plant, ...]]]:
    if condition.name == HEALTHY:
        yield "", ()
        return
    for level in levels:
        plants = condition.plants_for(recipe, level)
        if plants:
            yield level, plants


def run_rows(laid: Sequence[Row], jobs: int, executor: Executor | None = None) -> Iterator[Outcome]:
    """Run rows side by side and yield their outcomes as they end.

    Args:
        laid: the rows.
        jobs: how many at once, where no executor is given.
        executor: any `concurrent.futures` executor, to spread the rows over processes or machines.
    """
    pool = executor or ThreadPoolExecutor(max_workers=jobs)
    futures = [pool.submit(run_row, row) for row in laid]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:  # also where the caller was interrupted: nothing may run on
        for future in futures:
            future.cancel()
        for process in list(_RUNNING):
            process.terminate()
        if executor is None:
            pool.shutdown(wait=True)


def run_row(row: Row) -> Outcome:
    """Run one row in a scratch folder of its own and read the report."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        # The same name in every row: nothing may be read from it.
        (folder / "train.py").write_text(row.source, encoding="utf-8")
        failure = watch(folder, row.options)
        verdict = _verdict(folder / "report.json", failure)
        strengths = _strengths(folder / "runs")
    return Outcome(row, **verdict, strengths=strengths, seconds=time.perf_counter() - began)


def watch(folder: Path, options: Sequence[str]) -> str:
    """Run `train.py` of a folder by `lossdoctor run`, into `runs` and `report.json` beside it; return what went wrong, or nothing."""
    command = [sys.executable, "-m", "lossdoctor", "run", "--quiet", "--json", "report.json", "--out", "runs", *options, "train.py"]
    # One thread a row: rows side by side must not take each other's cores.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # One child at a time per thread; its output is kept in files, which no script can fill a pipe of.
    with (folder / "said").open("w+b") as said, subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said) as process:
        _RUNNING.add(process)
        try:
            status = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # is passed on to the script
            return f"not done after {LIMIT_SECONDS:.0f} s"
        finally:
            _RUNNING.discard(process)
    return "" if status == 0 else f"status {status}: {_end(folder / 'said')}"


def _end(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8", errors="replace")[-300:].split())


def _verdict(path: Path, failure: str) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"verdict": "failed", "why": failure or "no report was written"}
    by_status = {status: [found for found in report["findings"] if found["status"] == status] for status in ("present", "suspected")}
    slug = report["verdict"]["slug"]
    evidence = [seen for found in by_status["present"] if found["slug"] == slug for seen in found["evidence"]]
    return {
        "verdict": slug,
        "said": tuple((found["slug"], found["severity"], found["probability"]) for found in by_status["present"]),
        "suspected": tuple((found["slug"], found["probability"]) for found in by_status["suspected"]),
        "why": "; ".join(f"{seen['signal']} {seen['seen']} (expected {seen['expected']})" for seen in evidence[:2]) or failure,
    }


def _strengths(out: Path) -> dict[str, float]:
    trainings = [training for facts in sorted(out.glob("*/run.json")) for training in load_run(facts.parent).trainings]
    return {slug: max((engine.strength(fault, training) for training in trainings), default=0.0) for slug, fault in faults().items()}
