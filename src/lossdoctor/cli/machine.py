"""Say whether a bigger machine would help a script, and how much at most."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report
from lossdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(context_settings={"allow_interspersed_args": False})
@_options.script
@_options.reporting
@click.option("--seconds", type=click.FloatRange(1.0), default=60.0, metavar="S", help="How long to let it train, at most  [60]")
@click.option("--memory", type=click.FloatRange(0.1), metavar="GIB", help="Find the largest batch that fits into so much memory.")
def command(
    script: str,
    arguments: Sequence[str],
    module: bool,
    json: str | None,
    quiet: bool,
    select: Sequence[str],
    ignore: Sequence[str],
    fail_on: str,
    seconds: float,
    memory: float | None,
) -> None:
    """Say whether a bigger machine would help SCRIPT: all conditions, each met or not, and the most that each device could give.

    It runs shut off from the machine: what it writes is gone with it, and it reaches no network. Its output is not shown.
    """
    from pathlib import Path

    from lossdoctor.core.config import load_settings
    from lossdoctor.launch.supervisor import Job
    from lossdoctor.machine.devices import devices
    from lossdoctor.measuring import measure_machine
    from lossdoctor.session import Choice, check_choice

    file = _report.json_file(json)
    choice = Choice(select, ignore)
    check_choice(choice)
    if not module and not os.path.exists(script):
        raise UsageError(f"no such script: {script!r}")
    added = load_settings(Path.cwd()).devices
    devices(added)  # a mistake in the table is told before the run
    if not quiet:
        _report.say(f"running the script for up to {seconds:.0f} s, shut off from the machine, then measuring for up to 40 s")
    diagnosis = measure_machine(Job((script, *arguments), Path(), module), choice, seconds, added, memory)
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
