"""Break a small network ten ways and name each, in a minute."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lossdoctor.bench.matrix import Outcome, Row


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=None, help="Scripts at once; as many as cores where left out.")
def command(jobs: int | None) -> None:
    """Break a small network ten ways and name each, in a minute.

    Every line is a real run of `lossdoctor run` on a short script that classifies handwritten digits, made sick by one edit.
    """
    from rich.console import Console

    from lossdoctor.bench.demo import demo_rows
    from lossdoctor.core.errors import LossdoctorError

    if importlib.util.find_spec("torch") is None:
        raise LossdoctorError("the demonstration trains a network and PyTorch is not installed: pip install torch")
    console, began, laid = Console(), time.perf_counter(), demo_rows()
    console.print(f"A small network learns handwritten digits, {len(laid)} times: once as it should, then each time with one thing broken.")
    console.print(f"{'planted':<28}{'the doctor says':<28}{'seconds':>7}  because", style="bold")
    outcomes = _run(laid, jobs or os.cpu_count() or 1, console)
    failed = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    if failed:
        raise LossdoctorError(f"{len(failed)} of {len(laid)} runs gave no report; the first: {failed[0].why}")
    named = sum(outcome.named for outcome in outcomes)
    console.print(f"{named} of {len(outcomes)} named in {time.perf_counter() - began:.0f} s.", style="bold")
    console.print("Now your own script, unchanged:  lossdoctor run train.py", style="bold")


def _run(laid: Sequence[Row], jobs: int, console: Console) -> list[Outcome]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from lossdoctor.bench.matrix import run_rows

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the rows and cleans up, as Ctrl-C does
    outcomes = []
    with Progress(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("runs", total=len(laid))
        for outcome in run_rows(laid, jobs):
            outcomes.append(outcome)
            progress.console.print(
                _line(outcome), style=None if outcome.named else "red", no_wrap=True, overflow="ellipsis", highlight=False, markup=False
            )
            progress.advance(task)
    return outcomes


def _line(outcome: Outcome) -> str:
    planted = "nothing" if outcome.row.planted == "healthy" else outcome.row.planted
    return f"{planted:<28}{outcome.verdict:<28}{outcome.seconds:>7.1f}  {outcome.why}"
