"""Plant faults in healthy scripts and show how many of them the doctor names."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lossdoctor.bench.matrix import Outcome, Row
    from lossdoctor.core.fault import Level


@click.command()
@click.option(
    "--suite",
    "suite_name",
    type=click.Choice(["ten", "watching", "all", "pairs", "confirm", "sets", "speed"]),
    default="ten",
    show_default=True,
    help="What is planted.",
)
@click.option("--recipes", "recipe_names", metavar="NAMES", default="", help="Recipes, separated by commas; all where left out.")
@click.option("--faults", "fault_names", metavar="SLUGS", default="", help="Conditions, separated by commas, instead of a suite.")
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="How many seeds of each script.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of the seeds.")
@click.option("--levels", default="middle", show_default=True, help="Severities: mild, middle, severe, separated by commas.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Rows at once; as many as cores where left out.")
@click.option("--workup", "row_workup", type=click.Choice(["auto", "none", "full"]), default=None, help="Passed on to `lossdoctor run`.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write rows and figures as JSON.")
@click.option("--calibrate", is_flag=True, help="Learn the probabilities of the rules from these rows and write calibration.json.")
def command(
    suite_name: str,
    recipe_names: str,
    fault_names: str,
    seeds: int,
    first_seed: int,
    levels: str,
    jobs: int | None,
    row_workup: str | None,
    json_path: Path | None,
    calibrate: bool,
) -> None:
    """Plant faults in healthy scripts and show how many of them the doctor names.

    Each row is a recipe with one source edit, run by `lossdoctor run` in a process of its own. The table counts the verdicts.
    In the suite `confirm` the planted fault is then confirmed by a trial, and on healthy scripts every treatment is tried.
    In the suite `sets` two faults are planted: is the smallest set of treatments that restores the run that of the two?
    In the suite `speed` what costs time or memory is planted and mended again, one row after the other: is the first cause
    right, and does mending it gain what was predicted?
    """
    from rich.console import Console

    from lossdoctor.bench.score import as_json
    from lossdoctor.bench.tables import summary

    options = ("--workup", row_workup) if row_workup else ()
    if suite_name == "speed":
        _speed(_names(fault_names), _levels(levels), range(first_seed, first_seed + seeds), options, json_path)
        return
    laid = _rows(suite_name, _names(recipe_names), _names(fault_names), _levels(levels), range(first_seed, first_seed + seeds), options)
    if suite_name in ("confirm", "sets"):
        (_confirm if suite_name == "confirm" else _sets)(laid, json_path)
        return
    outcomes = _run(laid, jobs or os.cpu_count() or 1)
    # Off a terminal nothing needs to fit, and a line that wraps is hard to search.
    Console(width=None if sys.stdout.isatty() else 160).print(summary(outcomes), soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(outcomes), indent=1) + "\n", encoding="utf-8")
    if calibrate:
        _calibrate(outcomes)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _levels(text: str) -> list[Level]:
    from lossdoctor.core.errors import UsageError

    names = _names(text)
    for name in names:
        if name not in ("mild", "middle", "severe"):
            raise UsageError(f"no level is called {name!r}; there are: mild, middle, severe")
    return cast("list[Level]", names)


def _rows(
    suite_name: str, recipe_names: Sequence[str], fault_names: Sequence[str], levels: Sequence[Level], seeds: range, options: Any
) -> list[Row]:
    from lossdoctor.bench import conditions, cures
    from lossdoctor.bench.edit import find_recipe, recipes
    from lossdoctor.bench.matrix import rows

    scripts = [find_recipe(name) for name in recipe_names] or list(recipes().values())
    planted = cures.chosen(fault_names) if suite_name == "confirm" else conditions.chosen(suite_name, fault_names)
    return rows(scripts, planted, levels, seeds, options)


def _run(laid: Sequence[Row], jobs: int) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from lossdoctor.bench.matrix import run_rows

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the rows and cleans up, as Ctrl-C does
    console = Console(stderr=True)
    outcomes: dict[tuple[Any, ...], Outcome] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("rows", total=len(laid))
        try:
            for outcome in run_rows(laid, jobs):
                outcomes[_key(outcome.row)] = outcome
                said = f"{outcome.row.planted} on {outcome.row.recipe}, seed {outcome.row.seed}: {outcome.verdict}"
                progress.update(task, advance=1, description=said)
                if not console.is_terminal:
                    click.echo(f"{len(outcomes)} of {len(laid)}: {said}", err=True)
        except KeyboardInterrupt:
            click.echo(f"interrupted: the figures are of {len(outcomes)} of {len(laid)} rows", err=True)
    return [outcomes[_key(row)] for row in laid if _key(row) in outcomes]


def _confirm(laid: Sequence[Row], json_path: Path | None) -> None:
    """Try the treatments one after another, for a trial uses the cores by itself; show what was confirmed."""
    from rich.console import Console

    from lossdoctor.bench.trials import as_json, table, try_rows

    tried = []
    try:
        for each in try_rows(laid):
            tried.append(each)
            why = f" ({each.reason})" if each.reason else ""
            said = f"{each.planted} on {each.recipe}, seed {each.seed}, treatment of {each.fault}: {each.verdict}{why}"
            click.echo(f"{said}, effect {each.effect:.2f}, {each.seconds:.0f} s", err=True)
    except KeyboardInterrupt:
        click.echo(f"interrupted: the figures are of {len(tried)} trials", err=True)
    Console(width=None if sys.stdout.isatty() else 160).print(table(tried), soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(tried), indent=1) + "\n", encoding="utf-8")


def _sets(laid: Sequence[Row], json_path: Path | None) -> None:
    """Confirm rows of two faults one after another; show which sets were found."""
    from rich.console import Console

    from lossdoctor.bench.sets import as_json, table, try_sets

    tried = []
    try:
        for each in try_sets(laid):
            tried.append(each)
            found = f"{' + '.join(each.needed) or 'none'}{', exact' if each.exact else ''}"
            said = f"{each.planted} on {each.recipe}, seed {each.seed}: {found} ({'; '.join(each.verdicts) or 'nothing was tried'})"
            click.echo(f"{said}, {each.seconds:.0f} s", err=True)
    except KeyboardInterrupt:
        click.echo(f"interrupted: the figures are of {len(tried)} rows", err=True)
    Console(width=None if sys.stdout.isatty() else 160).print(table(tried), soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(tried), indent=1) + "\n", encoding="utf-8")


def _speed(names: Sequence[str], levels: Sequence[Level], seeds: range, options: Sequence[str], json_path: Path | None) -> None:
    """Plant inefficiencies and mend them, one after the other; show what each gained."""
    from rich.console import Console

    from lossdoctor.bench.inefficiencies import inefficiencies
    from lossdoctor.bench.speed import SIMULATED, as_json, gained_rows, simulated, table
    from lossdoctor.core.errors import UsageError

    known = inefficiencies()
    for name in names:
        if name not in (*known, SIMULATED):
            raise UsageError(f"no inefficiency is called {name!r}; there are: {', '.join((*known, SIMULATED))}")
    planted = [known[name] for name in names or known if name in known]
    rows = [simulated(level) for level in levels] if SIMULATED in names or not names else []
    try:
        for each in gained_rows(planted, levels, seeds, options):
            rows.append(each)
            figures = f"gain {each.predicted:.2f} predicted, {each.measured:.2f} measured"
            click.echo(f"{each.planted} {each.level}, seed {each.seed}: {each.said or 'none'}, {figures}, {each.seconds:.0f} s", err=True)
    except KeyboardInterrupt:
        click.echo(f"interrupted: the figures are of {len(rows)} rows", err=True)
    Console(width=None if sys.stdout.isatty() else 160).print(table(rows), soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(rows), indent=1) + "\n", encoding="utf-8")


def _key(row: Row) -> tuple[Any, ...]:
    return (row.recipe, row.planted, row.level, row.seed)


def _calibrate(outcomes: Sequence[Outcome]) -> None:
    from lossdoctor.bench.calibrate import calibrate, held_out
    from lossdoctor.diagnose import confidence

    for left in held_out(outcomes):
        found = f"{left.present} said to be present, {left.right} of them planted, {left.planted} planted in all"
        click.echo(f"held out {left.recipe}: Brier score {left.brier:.4f}; {found}", err=True)
    fitted = calibrate(outcomes)
    confidence.write(fitted)
    click.echo(f"wrote the tables of {len(fitted)} faults to {confidence.PATH}", err=True)
