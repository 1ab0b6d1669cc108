"""Plant two faults at once and look whether the smallest set of treatments that restores the run is that of the two."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lossdoctor.bench.matrix import Row, watch
from lossdoctor.bench.score import Share
from lossdoctor.core.fault import faults
from lossdoctor.core.store import load_run
from lossdoctor.diagnose import diagnose
from lossdoctor.trials.confirm import Confirmer


@dataclass(frozen=True)
class Reduced:
    """Hold the smallest set that was found for a row.

    Args:
        planted: the pair.
        named: present findings, those of the pair first.
        needed: slugs of the set.
        exact: whether it holds one of each planted fault that can be treated, and none beside the planted ones.
        seconds: of all trials.
        verdicts: of the trials, with why they are unclear.

    Example:
        >>> Reduced("digits", "zero-grad-missing + input-bottleneck", 0, (), ("zero-grad-missing",), False, 60.0).exact
        False
    """

    recipe: str
    planted: str
    seed: int
    named: tuple[str, ...]
    needed: tuple[str, ...]
    exact: bool
    seconds: float
    verdicts: tuple[str, ...] = ()


def try_sets(rows: Sequence[Row]) -> Iterator[Reduced]:
    """Watch rows of two planted faults one after another, confirm what was found, and compare the set with what was planted."""
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch)
            (folder / "train.py").write_text(row.source, encoding="utf-8")
            watch(folder, row.options)
            runs = sorted((folder / "runs").glob("*/run.json"))
            if runs:
                yield _reduced(row, runs[-1].parent)


def _reduced(row: Row, folder: Path) -> Reduced:
    run = load_run(folder)
    diagnosis, confirmer = diagnose(run), Confirmer(folder, run)
    found = confirmer.confirm(diagnosis)
    needed = tuple(each.finding.slug for each in found.needed)
    seconds = sum(trial.seconds for _, trial in found.trials.values())
    pair = (row.accepted, row.beside)
    present = [each.slug for each in diagnosis.present]
    named = sorted(present, key=lambda slug: not any(slug in cause for cause in pair))
    right = exact(pair, needed, confirmer.untreated)
    verdicts = tuple(f"{slug} {trial.verdict} {trial.reason}".strip() for slug, (_, trial) in found.trials.items())
    return Reduced(row.recipe, row.planted, row.seed, tuple(named), needed, right, round(seconds, 1), verdicts)


def exact(pair: Sequence[Sequence[str]], needed: Sequence[str], untreated: Mapping[str, str]) -> bool:
    """Tell whether a set holds one fault of each cause that can be treated, and none that was not planted.

    Args:
        pair: the slugs that name each cause.
        needed: the set.
        untreated: slugs of faults whose treatment cannot be tried on the run.

    Example:
        >>> exact([["lr-too-low"], ["labels-meaningless"]], ["lr-too-low"], {})
        True
    """
    for cause in pair:
        count = sum(slug in cause for slug in needed)
        treatable = any(faults()[slug].treatment is not None and slug not in untreated for slug in cause)
        if count > 1 or (treatable and not count):
            return False
    return all(any(slug in cause for cause in pair) for slug in needed)


def table(tried: Sequence[Reduced]) -> Table:
    """Build the table: of each pair how many sets were exact, and what the others were."""
    made = Table(title="smallest sets", title_justify="left")
    for column in ("planted", "exact, 95 % interval", "other sets"):
        made.add_column(column)
    for planted in dict.fromkeys(each.planted for each in tried):
        group = [each for each in tried if each.planted == planted]
        others = [f"{each.recipe}: {' + '.join(each.needed) or 'none'}" for each in group if not each.exact]
        made.add_row(planted, str(Share.of(sum(each.exact for each in group), len(group))), ", ".join(others))
    return made


def as_json(tried: Sequence[Reduced]) -> dict[str, Any]:
    """Return all sets as one JSON value."""
    return {"schema": "lossdoctor/bench-sets/1", "sets": [asdict(each) for each in tried]}
