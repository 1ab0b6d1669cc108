"""Try the treatment of what a run was diagnosed with, and say whether it cures it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report, _runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lossdoctor.trials.fix import Fix


@click.command()
@_options.reporting
@_options.out
@click.option("--time-limit", type=click.FloatRange(1), metavar="SECONDS", help="For each trial  [twice the run's time and 20 s]")
@click.option("--diff", is_flag=True, help="Print the fix as a diff of the script, where a plain edit is known, and try that.")
@click.option("--apply", is_flag=True, help="As --diff; then write it into the script, after asking, beside a copy of what it was.")
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
    diff: bool,
    apply: bool,
) -> None:
    """Run the script of a kept run again, treated and untreated, and say whether the treatment cures it.

    RUN is its folder, its name, a prefix that only it has, or `last`, which is taken where RUN is left out.
    The script runs in a child that is shut off from the machine: what it writes is gone with it.
    """
    from lossdoctor.session import Choice, confirm_folder

    file = _report.json_file(json)
    say = (lambda words: None) if quiet else _report.say
    diagnosis, fix = confirm_folder(_runs.find_run(run, out), Choice(select, ignore, say=say), time_limit, edit=diff or apply)
    _report.deliver(diagnosis, file, quiet)
    if fix is not None:
        _show(fix, standard_output=file is None or str(file) != "-")
    if apply and fix is not None and fix.diff:
        _apply(fix)
    if _report.fails(diagnosis, fail_on):
        sys.exit(1)


def _show(fix: Fix, *, standard_output: bool) -> None:
    """Print the diff, and say what its trial showed."""
    click.echo(fix.diff, nl=False, err=not standard_output)
    if fix.without:
        _report.say(f"no plain edit is known for {', '.join(fix.without)}; the report says what to do")
    if fix.trial is not None:
        _report.say(f"the edited script was tried: {fix.trial.verdict}{f', {fix.trial.reason}' if fix.trial.reason else ''}")
    elif fix.diff:
        _report.say("the edited script was not tried: namespaces are refused here")
    if not fix.diff and not fix.without:
        _report.say("nothing was confirmed, so there is nothing to edit")


def _apply(fix: Fix) -> None:
    """Write the fix after asking."""
    from lossdoctor.trials.fix import write

    if not click.confirm(f"Write this into {', '.join(fix.sources)}?", default=False, err=True):
        _report.say("nothing was written")
        return
    for copy in write(fix):
        _report.say(f"written; what it was is in {copy}")
