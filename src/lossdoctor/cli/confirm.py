"""Try the treatment of what a run was diagnosed with, and say whether it cures it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report, _runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@click.command()
@_options.reporting
@_options.out
@click.option("--time-limit", type=click.FloatRange(1), metavar="SECONDS", help="For each trial  [twice the run's time and 20 s]")
@click.argument("run", default=_runs.LAST)
def command(
    run: str,
    json: str | None,
    quiet: bool,
    select: Sequence[str],
    ignore: Sequence[str],
    fail_on: str,
    out: Path,
    time_limit: float | None,
) -> None:
    """Run the script of a kept run again, treated and untreated, and say whether the treatment cures it.

    RUN is its folder, its name, a prefix that only it has, or `last`, which is taken where RUN is left out.
    The script runs in a child that is shut off from the machine: what it writes is gone with it.
    """
    from lossdoctor.session import Choice, confirm_folder

    file = _report.json_file(json)
    say = (lambda words: None) if quiet else _report.say
    diagnosis = confirm_folder(_runs.find_run(run, out), Choice(select, ignore, say=say), time_limit)
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
