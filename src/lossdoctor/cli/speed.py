"""Say where a script's time goes, and which levers make it faster, each measured."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report
from lossdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Names in `machine.levers`, which needs torch.
LEVERS = ("autocast", "batch", "cached", "channels_last", "compiled", "optimiser_kernel", "threads", "whole_batches", "workers")


@click.command(context_settings={"allow_interspersed_args": False})
@_options.script
@_options.reporting
@click.option("--seconds", type=click.FloatRange(10.0), default=300.0, metavar="S", help="How long the trials may take, at most  [300]")
@click.option("--lever", "wanted", type=click.Choice(LEVERS), multiple=True, help="Try this one only; may be given several times.")
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
    wanted: Sequence[str],
) -> None:
    """Say where the time of SCRIPT goes, and which levers make it faster: each is tried on the unchanged script.

    It is run again and again for some seconds, shut off from the machine: what it writes is gone with it, and it reaches no
    network. Its output is not shown.
    """
    from pathlib import Path

    from lossdoctor.launch.supervisor import Job
    from lossdoctor.measuring import measure_speed
    from lossdoctor.session import Choice, check_choice

    file = _report.json_file(json)
    choice = Choice(select, ignore, say=(lambda words: None) if quiet else _report.say)
    check_choice(choice)
    if not module and not os.path.exists(script):
        raise UsageError(f"no such script: {script!r}")
    choice.say(f"running the script again and again, shut off from the machine, for up to {seconds:.0f} s")
    diagnosis = measure_speed(Job((script, *arguments), Path(), module), choice, seconds, wanted)
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
