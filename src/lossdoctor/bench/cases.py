"""Confirm what real failed scripts suffer from: is the cause confirmed, does its cure bring back what mending does, what does it cost?

Run it with `python -m lossdoctor.bench.cases FOLDER`. A case is a folder with `broken.py`, `fixed.py` (the same script, mended) and
`case.json` (`expected`: a list of causes, each a list of slugs that name it).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lossdoctor.bench.printed import Metric, metric
from lossdoctor.core.fault import faults
from lossdoctor.core.store import load_run
from lossdoctor.launch.child import repeat
from lossdoctor.trials.compare import CONFIRMED
from lossdoctor.trials.cost import BESIDES, TIMES
from lossdoctor.trials.results import read_trials

LIMIT_SECONDS = 600.0  # of one command; the cases take some ten seconds each on a core of their own
ENOUGH = 0.8  # of the gap between the sick and the mended script (bar of the project)
_SAID = re.compile(r"about (\d+) s")
COLUMNS = ("case", "verdict", "trials", "set", "metric", "broken", "treated", "mended", "back", "run s", "said s", "took s", "within")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


@dataclass(frozen=True)
class Tried:
    """Hold what a confirmation made of a case.

    Args:
        named: whether the verdict is one of the expected causes.
        trials: verdict of each fault's trial, with why it is unclear.
        needed: the smallest set of faults that restores the run.
        exact: whether that set holds one fault of each expected cause, and none beside.
        metric: the script's own; None where nothing was confirmed or no number tells the runs apart.
        seconds: of the script as watched, as said beforehand, as the confirmation took.
        untreated: faults whose treatment cannot be tried on the script.

    Example:
        >>> Tried("a", "lr-too-low", True, {}, (), False, None, (8.0, None, 30.0)).within
        True
    """

    case: str
    verdict: str
    named: bool
    trials: Mapping[str, str]
    needed: tuple[str, ...]
    exact: bool
    metric: Metric | None
    seconds: tuple[float, float | None, float]
    untreated: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Tell whether it cost at most twice the run's own time and twenty seconds."""
        return self.seconds[2] <= TIMES * self.seconds[0] + BESIDES

    @property
    def treatable(self) -> bool:
        """Tell whether it counts: its cause was named, and has a treatment that can be tried on it."""
        fault = faults().get(self.verdict)
        return self.named and fault is not None and fault.treatment is not None and self.verdict not in self.untreated

    @property
    def confirmed(self) -> bool:
        """Tell whether the trial of the verdict confirmed it."""
        return self.trials.get(self.verdict) == CONFIRMED

    def row(self) -> str:
        """Return its line of the table."""
        found, (run, said, took) = self.metric, self.seconds
        trials = ", ".join(f"{slug} {verdict}" for slug, verdict in self.trials.items()) or "none"
        levels = (f"{value:.4g}" for value in (found.sick, found.treated, found.mended)) if found else ("", "", "")
        cells = [self.case, self.verdict, trials, f"{' + '.join(self.needed) or '-'}{', exact' if self.exact else ''}"]
        cells += [found.name if found else "", *levels, f"{found.recovered:.0%}" if found else ""]
        cells += [f"{run:.1f}", "" if said is None else f"{said:.0f}", f"{took:.1f}", "yes" if self.within else "no"]
        return f"| {' | '.join(cells)} |"


def cases(folder: Path, only: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the folders of cases that can be compared with their mended twin.

    Args:
        folder: that holds them.
        only: parts of names, one of which must be in a case's; all where empty.
    """
    for path in sorted(folder.glob("*/case.json")):
        whole = all((path.parent / name).is_file() for name in ("broken.py", "fixed.py"))
        if whole and (not only or any(part in path.parent.name for part in only)):
            yield path.parent


def try_case(case: Path) -> Tried:
    """Watch a case's broken script, confirm what was found, and run it to its end under the treatments that are needed."""
    expected: list[list[str]] = json.loads((case / "case.json").read_text(encoding="utf-8")).get("expected", [])
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
        work = Path(scratch) / case.name
        shutil.copytree(case, work)
        (work / "case.json").unlink()
        sick, _, _ = _doctor(work, "run", "--workup", "auto", "broken.py")
        run = max((work / "runs").glob("*/run.json")).parent
        verdict = json.loads((work / "report.json").read_text(encoding="utf-8"))["verdict"]["slug"]
        own = float((load_run(run).facts.get("ended") or {}).get("seconds") or 0.0)
        _, told, took = _doctor(work, "confirm", "last")
        kept = read_trials(run)
        trials = {
            slug: each["verdict"] + (f" ({each['reason']})" if each["reason"] else "") for slug, each in kept.get("trials", {}).items()
        }
        needed, untreated = tuple(kept.get("needed", ())), tuple(kept.get("untreated", ()))
        values = [value for slug in needed for value in kept["trials"][slug]["treatments"]]
        found = _compared(work, run, sick, values) if values else None
        said = _SAID.search(told)
    exact = len(needed) == len(expected) and all(any(slug in needed for slug in cause) for cause in expected)
    named = any(verdict in cause for cause in expected)
    return Tried(case.name, verdict, named, trials, needed, exact, found, (own, float(said[1]) if said else None, took), untreated)


def _told(trial: Mapping[str, Any]) -> str:
    """Return a trial's verdict, with why it is unclear where that is known."""
    return f"{trial['verdict']} ({trial['reason']})" if trial["reason"] else str(trial["verdict"])


def _doctor(work: Path, command: str, *arguments: str) -> tuple[str, str, float]:
    """Run a command of ours in a folder; return what it wrote to both outputs, and its seconds."""
    line = [sys.executable, "-m", "lossdoctor", command, "--json", "report.json", "--out", "runs", *arguments]
    return _call(work, line)


def _call(work: Path, line: Sequence[str]) -> tuple[str, str, float]:
    began = time.perf_counter()
    # One thread: whoever measures side by side must not take the others' cores.
    done = subprocess.run(
        line, cwd=work, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    return done.stdout, done.stderr, time.perf_counter() - began


def _compared(work: Path, run: Path, sick: str, values: Sequence[Mapping[str, Any]]) -> Metric | None:
    mended, _, _ = _call(work, [sys.executable, "fixed.py"])
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
        repeat(run, Path(scratch), values, LIMIT_SECONDS)
        treated = (Path(scratch) / "output.txt").read_text(encoding="utf-8", errors="replace")
    return metric(sick, mended, treated)


def summary(tried: Sequence[Tried]) -> str:
    """Say in lines how many were confirmed, brought back, and kept to their cost.

    Example:
        >>> summary([]).splitlines()[0]
        '0 of 0 named causes that have a treatment were confirmed'
    """
    counted = [each for each in tried if each.treatable]
    back = [each for each in counted if each.metric is not None and each.metric.recovered >= ENOUGH]
    over = [each.seconds[2] - TIMES * each.seconds[0] - BESIDES for each in counted]
    said = sum(each.seconds[1] is not None for each in counted)
    median = f", in the median {abs(statistics.median(over)):.0f} s {'over' if statistics.median(over) > 0 else 'below'} it" if over else ""
    return "\n".join(
        (
            f"{sum(each.confirmed for each in counted)} of {len(counted)} named causes that have a treatment were confirmed",
            f"{len(back)} of {len(counted)} treated runs got back {ENOUGH:.0%} of the gap",
            f"{sum(each.within for each in counted)} of {len(counted)} cost at most twice the run and {BESIDES:.0f} s{median}",
            f"{said} of {len(counted)} said beforehand about how long it takes",
        )
    )


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--only", default="", metavar="TEXTS", help="Only cases with one of these in their name, separated by commas.")
@click.option("--table", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the table as Markdown.")
def main(folder: Path, only: str, table: Path | None) -> None:
    """Confirm the cases of a folder and compare each treated run with the mended script."""
    chosen = list(cases(folder, [part for part in only.split(",") if part]))
    if not chosen:
        click.echo(f"{folder} holds no case with broken.py and fixed.py: skipped", err=True)
        return
    tried: list[Tried] = []
    click.echo(HEAD)
    for case in chosen:
        tried.append(try_case(case))
        click.echo(tried[-1].row())
        if table is not None:  # after each: whoever ends it early keeps what there is
            table.write_text("\n".join((HEAD, *(each.row() for each in tried), "", summary(tried), "")), encoding="utf-8")
    click.echo(summary(tried))


if __name__ == "__main__":
    main()
