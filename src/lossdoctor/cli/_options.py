"""The options that several commands share; their defaults are the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lossdoctor.cli import _report
from lossdoctor.core.config import FAIL_ON, WORKUP, parse_budget, parse_codes

Function = TypeVar("Function", bound=Callable[..., Any])


def _read_by(parse: Callable[[object], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Let a function that raises `ValueError` read an option's value."""

    def read(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}", context, parameter) from None

    return read


def _keep_html(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_report.HTML] = _report.output_file("--html", value)


def out(function: Function) -> Function:
    """Add `--out`."""
    return click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Folder of the runs  [.lossdoctor]")(
        function
    )


def script(function: Function) -> Function:
    """Add the script that a command starts: `-m`, SCRIPT and ARGS."""
    function = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")(function)
    function = click.argument("script", metavar="SCRIPT")(function)
    return click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in python -m.")(function)


def reporting(function: Function) -> Function:
    """Add the options of every command that diagnoses."""
    for option in reversed(
        (
            click.option("--json", "json", metavar="FILE", help="Write the report as JSON; - is standard output."),
            # Not handed to the command: `_report` finds it where it delivers.
            click.option("--html", metavar="FILE", expose_value=False, callback=_keep_html, help="Write the report as one HTML file."),
            click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors."),
            click.option(
                "--select",
                type=click.UNPROCESSED,
                callback=_read_by(parse_codes),
                metavar="CODES",
                help="Faults to look for: codes, slugs, families.",
            ),
            click.option("--ignore", type=click.UNPROCESSED, callback=_read_by(parse_codes), metavar="CODES", help="Faults to leave out."),
            click.option("--fail-on", type=click.Choice(FAIL_ON), help="Turn status 0 into 1 where such a fault is present  [never]"),
        )
    ):
        function = option(function)
    return function


def recording(function: Function) -> Function:
    """Add the options of every command that records."""
    for option in reversed(
        (
            click.option("--max-steps", type=click.IntRange(1), metavar="N", help="End the recording, not the script, after N steps."),
            click.option(
                "--budget", type=click.UNPROCESSED, callback=_read_by(parse_budget), metavar="SHARE", help="What measuring may cost  [1%]"
            ),
            click.option("--workup", type=click.Choice(WORKUP), help="Active experiments after the run  [auto]"),
        )
    ):
        function = option(function)
    return function
