"""List the runs that are kept, the newest last."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report, _runs

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@_options.out
@click.option("--json", "json", metavar="FILE", help="Write the list as JSON; - is standard output.")
def command(out: Path, json: str | None) -> None:
    """List the runs that are kept, the newest last."""
    entries = [_runs.entry(folder) for folder in _runs.run_folders(out)]
    if json is not None:
        _report.write_plain([dataclasses.asdict(entry) for entry in entries], json)
    elif entries:
        _print(entries)
    else:
        click.echo(f"no run is kept in {out}; `lossdoctor run SCRIPT` makes one", err=True)


def _print(entries: list[_runs.Entry]) -> None:
    from rich.markup import escape

    table = _report.table("run", "script", "started", "ended", ("steps", "right"), "verdict")
    for entry in entries:
        steps = "" if entry.steps is None else str(entry.steps)
        table.add_row(*map(escape, (entry.name, entry.script, entry.started, entry.ended, steps, entry.verdict)))
    _report.print_table(table)
