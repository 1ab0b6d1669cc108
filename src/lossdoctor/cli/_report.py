"""What the commands do with a diagnosis: print it, write it as JSON, turn it into an exit status."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import click

from lossdoctor.core.errors import LossdoctorError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from lossdoctor.core.diagnosis import Diagnosis

HTML = "lossdoctor.html"  # key of the context's `meta`
_STANDARD_OUTPUT = Path("-")


def json_file(text: str | None, *, standard_output: bool = True) -> Path | None:
    """Turn the value of `--json` into a path that stays right when the script changes directory.

    Args:
        standard_output: whether `-` is allowed; it is not where standard output is the script's.

    Raises:
        UsageError: where nothing can be written there.
    """
    if text is None:
        return None
    if text == "-":
        if not standard_output:
            raise UsageError("--json - is not possible here: standard output is the script's; name a file")
        return _STANDARD_OUTPUT
    return output_file("--json", text)


def output_file(option: str, text: str) -> Path:
    """Return the absolute path of a file to write.

    Raises:
        UsageError: where nothing can be written there.
    """
    path = Path(text).absolute()
    if path.is_dir():
        raise UsageError(f"{option} {text}: this is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {text}: there is no folder {str(path.parent)!r}")
    return path


def html_file() -> Path | None:
    """Return where the command that runs writes its report as HTML, if it does."""
    found: Path | None = click.get_current_context().meta.get(HTML)
    return found


def write_html(diagnosis: Diagnosis) -> None:
    """Write the report as HTML where `--html` asks for it.

    Raises:
        LossdoctorError: where the file cannot be written.
    """
    file = html_file()
    if file is not None:
        from lossdoctor.report.html import write

        write(diagnosis, file)


def write_json(diagnosis: Diagnosis, file: Path) -> None:
    """Write the report as JSON.

    Raises:
        LossdoctorError: where the file cannot be written.
    """
    from lossdoctor.report.json import dumps

    _write(dumps(diagnosis), file)


def write_plain(value: Any, json_option: str) -> None:
    """Write plain values as JSON where `--json` says."""
    import json

    file = json_file(json_option)
    assert file is not None
    _write(json.dumps(value, indent=2) + "\n", file)


def _write(text: str, file: Path) -> None:
    if file == _STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LossdoctorError(f"{file} could not be written: {error.strerror}") from error


def table(*columns: str | tuple[str, str]) -> Table:
    """Make a table without boxes; a column is its heading, or its heading and how it is justified."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        heading, justify = (column, "left") if isinstance(column, str) else column
        made.add_column(heading, justify=cast("Any", justify), no_wrap=True)
    return made


def print_table(made: Table) -> None:
    """Print a table to standard output; never narrower than its content where no terminal limits it."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, Measurement.get(console, console.options.update(max_width=10_000), made).maximum))
    console.print(made)


def print_report(diagnosis: Diagnosis, stream: IO[str] | None = None) -> None:
    """Print the report for a reader; to standard output where no stream is given."""
    from rich.console import Console

    from lossdoctor.report.terminal import render

    render(diagnosis, Console(file=stream or sys.stdout))


def deliver(diagnosis: Diagnosis, file: Path | None, quiet: bool) -> None:
    """Print the report to standard output and write it as JSON, as the options ask; never two texts into one stream."""
    if file is not None:
        write_json(diagnosis, file)
    write_html(diagnosis)
    if not quiet and file != _STANDARD_OUTPUT:
        print_report(diagnosis)


def fails(diagnosis: Diagnosis, fail_on: str) -> bool:
    """Tell whether a fault of the severity of `--fail-on`, or above, is present."""
    severities = {"error": ("error",), "warning": ("error", "warning"), "never": ()}[fail_on]
    return any(finding.severity in severities for finding in diagnosis.present)


def say(text: str) -> None:
    """Print one line of our own to standard error; never fail for it."""
    try:
        click.echo(f"lossdoctor: {text}", err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # standard error has gone, as in `2>&1 | head`


def describe(error: BaseException) -> str:
    """Say in one sentence that something of ours failed, and how to learn more; print the traceback where it was asked for."""
    if os.environ.get("LOSSDOCTOR_DEBUG"):
        import traceback

        traceback.print_exception(error)
    return f"an error of our own, {type(error).__name__}: {error}; LOSSDOCTOR_DEBUG=1 shows where"
