"""Diagnose from logs: a file, a folder, or - for standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    from lossdoctor.readers.judge import judge
    from lossdoctor.readers.parts.load import load
    from lossdoctor.readers.parts.roles import parse_map
    from lossdoctor.readers.parts.source import Source

    file = _report.json_file(json)
    roles = parse_map(mapped)
    diagnosis = judge(load(Source(paths[0]), roles), select=select, ignore=ignore)
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
