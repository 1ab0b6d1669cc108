"""Watch an unchanged script train, and say what is wrong with it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _options, _report
from lossdoctor.core.errors import LossdoctorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lossdoctor.session import Choice, Outcome


@click.command(context_settings={"allow_interspersed_args": False})
@_options.script
@_options.reporting
@_options.out
@_options.recording
@click.option("--confirm", is_flag=True, help="Then try the treatment of what was found, as `lossdoctor confirm` does.")
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
    budget: float,
    workup: str,
    confirm: bool,
) -> None:
    """Watch SCRIPT train as python would run it with ARGS, and say what is wrong with it.

    Our own words go to standard error, after the script's. The exit status is the script's.
    """
    from lossdoctor.launch.supervisor import Job, end_as
    from lossdoctor.session import Choice, check_choice, watch_script

    file = _report.json_file(json, standard_output=False)
    asked = click.get_current_context().get_parameter_source("workup") == click.core.ParameterSource.COMMANDLINE
    # Off a terminal (a batch queue) the script is run again only when asked.
    choice = Choice(select, ignore, workup, asked or sys.stderr.isatty(), (lambda words: None) if quiet else _report.say)
    check_choice(choice)
    if not module and not os.path.exists(script):
        raise UsageError(f"no such script: {script!r}")
    job = Job((script, *arguments), out.absolute(), module, budget, max_steps)
    outcome = watch_script(job, choice, modules=_modules(quiet))
    if confirm and outcome.folder is not None and outcome.diagnosis is not None:
        outcome = _confirmed(outcome, outcome.folder, choice)
    failed = _tell(outcome, file, quiet, fail_on)
    end_as(1 if failed and outcome.ending.status == 0 else outcome.ending.status)


def _confirmed(outcome: Outcome, folder: Path, choice: Choice) -> Outcome:
    """Try the treatments; what keeps us from it is told, and the report stands without."""
    from lossdoctor.session import confirm_folder

    try:
        return replace(outcome, diagnosis=confirm_folder(folder, choice)[0])
    except KeyboardInterrupt:
        _report.say("interrupted before the trials were over; `lossdoctor confirm` starts them again")
    except Exception as error:
        _say_error(error, folder)
    return outcome


def _modules(quiet: bool) -> list[str]:
    """Return what the report will need, for the supervisor to import while the script runs."""
    html = ["lossdoctor.report.html", "plotly.graph_objects"] if _report.html_file() is not None else []
    return html if quiet else ["lossdoctor.report.terminal", *html]


def _tell(outcome: Outcome, file: Path | None, quiet: bool, fail_on: str) -> bool:
    """Deliver the report, whatever of it can be; tell whether `--fail-on` is met."""
    diagnosis = outcome.diagnosis
    if diagnosis is None:
        _say_error(outcome.error, outcome.folder)
        return False
    if file is not None:
        _attempt(lambda: _report.write_json(diagnosis, file))
    _attempt(lambda: _report.write_html(diagnosis))
    if not quiet:
        _attempt(lambda: _report.print_report(diagnosis, sys.stderr))
    return _report.fails(diagnosis, fail_on)


def _attempt(work: Callable[[], None]) -> None:
    """Do our part; its failure is told, and never changes how the script ended."""
    try:
        work()
    except (BrokenPipeError, SystemExit):  # rich turns the one into the other
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nobody reads standard error any more
    except KeyboardInterrupt:
        _report.say("interrupted; `lossdoctor report last` prints the report")
    except Exception as error:
        _say_error(error, None)


def _say_error(error: BaseException | None, folder: Path | None) -> None:
    words = str(error) if isinstance(error, LossdoctorError) else _report.describe(error or Exception("no diagnosis"))
    again = f"; the record is kept: lossdoctor report {folder}" if folder is not None else ""
    _report.say(words + again)
