"""Diagnose a kept run again and print the report."""

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
@click.argument("run", default=_runs.LAST)
def command(run: str, json: str | None, quiet: bool, select: Sequence[str], ignore: Sequence[str], fail_on: str, out: Path) -> None:
    """Diagnose a kept run again and print the report.

    RUN is its folder, its name, a prefix that only it has, or `last`, which is taken where RUN is left out.
    """
    from lossdoctor.session import Choice, diagnose_folder

    file = _report.json_file(json)
    diagnosis = diagnose_folder(_runs.find_run(run, out), Choice(select, ignore))
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
