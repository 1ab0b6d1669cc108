"""Check a script before its long run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report
from lossdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@click.command(context_settings={"allow_interspersed_args": False})
@_options.script
@_options.reporting
@_options.out
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="Steps that are enough, once a validation pass was seen  [300]")
@click.option("--seconds", type=click.FloatRange(1), default=25.0, metavar="N", help="End the script after N seconds at most  [25]")
@click.option(
    "--workup-seconds", type=click.FloatRange(1), metavar="N", help="Time for the experiments  [10; 140 where a step takes over 1 s]"
)
def command(
    script: str,
    arguments: Sequence[str],
    module: bool,
    json: str | None,
    quiet: bool,
    select: Sequence[str],
    ignore: Sequence[str],
    fail_on: str,
    out: Path,
    max_steps: int | None,
    seconds: float,
    workup_seconds: float | None,
) -> None:
    """Check SCRIPT before its long run: it is started with ARGS, ended early, and worked up.

    It runs shut off from the machine: what it writes is gone with it, and it reaches no network. Its output is not shown.
    """
    from lossdoctor.checking import check_script
    from lossdoctor.launch.checked import WORKUP_SECONDS, Limits
    from lossdoctor.launch.supervisor import Job
    from lossdoctor.session import Choice, check_choice

    file = _report.json_file(json)
    choice = Choice(select, ignore, say=_report.say if sys.stderr.isatty() and not quiet else lambda words: None)
    check_choice(choice)
    if not module and not os.path.exists(script):
        raise UsageError(f"no such script: {script!r}")
    limits = Limits(seconds, max_steps or Limits.steps, whole=seconds + (workup_seconds or WORKUP_SECONDS))
    diagnosis = check_script(Job((script, *arguments), out.absolute(), module), choice, limits)
    _report.deliver(diagnosis, file, quiet)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)
