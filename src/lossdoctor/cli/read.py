"""Diagnose from logs: a file, a folder, or - for standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report
from lossdoctor.core.errors import LossdoctorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lossdoctor.core.diagnosis import Diagnosis
    from lossdoctor.core.run import Run
    from lossdoctor.readers.compare import Compared


@click.command()
@_options.reporting
@click.option("--map", "mapped", multiple=True, metavar="ROLE=COLUMN", help="Say which column plays a role, as in --map loss=my_cost.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def command(
    paths: Sequence[str], mapped: tuple[str, ...], json: str | None, quiet: bool, select: Sequence[str], ignore: Sequence[str], fail_on: str
) -> None:
    """Diagnose a training run from the log that is left of it.

    PATH is a file, a folder, or - for standard input. Of a folder with several runs, or of several paths, one line each is
    printed, the worst first.
    """
    from lossdoctor.readers.compare import compare, report
    from lossdoctor.readers.parts.roles import parse_map

    file = _report.json_file(json)
    runs = _runs(paths, parse_map(mapped))
    compared = compare(runs, select=select, ignore=ignore)
    diagnosis = report(compared)
    if len(compared) == 1:
        _report.deliver(diagnosis, file, quiet)
    else:
        _deliver_all(diagnosis, compared, file, quiet, paths)
    if any(_report.fails(each.diagnosis, fail_on) for each in compared):
        sys.exit(1)


def _runs(paths: Sequence[str], mapped: Mapping[str, str]) -> list[tuple[str, Run]]:
    """Read every path; a folder that is no run itself is searched."""
    from lossdoctor.readers import load
    from lossdoctor.readers.folders import find

    found: list[tuple[str, Run]] = []
    for path in paths:
        if path != "-" and Path(path).is_dir():
            inside = find(Path(path), mapped)
            if not inside:
                raise LossdoctorError(f"no training log was found in the folder {path!r}", status=2)
            found += [(f"{path.rstrip('/')}/{name}" if len(paths) > 1 else name, run) for name, run in inside]
        else:
            found.append((path, load(path, {role: column for column, role in mapped.items()})))
    return found


def _deliver_all(diagnosis: Diagnosis, compared: Sequence[Compared], file: Path | None, quiet: bool, paths: Sequence[str]) -> None:
    """Write the report of the worst where the options ask for it; print a line for each run, and what tells them apart."""
    if file is not None:
        _report.write_json(diagnosis, file)
    _report.write_html(diagnosis)
    if quiet or str(file) == "-":
        return
    table = _report.table("run", "verdict", ("steps", "right"), ("last loss", "right"), ("best validation", "right"))
    for each in compared:
        figures = ("" if value is None else f"{value:.4g}" for value in (each.loss, each.validation))
        table.add_row(each.name, each.diagnosis.verdict, f"{each.steps:,}", *figures)
    _report.print_table(table)
    for name, values in list(diagnosis.run["differences"].items())[:12]:
        click.echo(f"they differ in {name}: {', '.join('-' if value is None else str(value) for value in values[:8])}")
    if diagnosis.run["best"]:
        click.echo(f"learns best: {diagnosis.run['best']}")
    worst = compared[0].name if len(paths) > 1 else f"{paths[0].rstrip('/')}/{compared[0].name}"
    click.echo(f"lossdoctor read {worst} tells more of the worst")
