"""The report on a terminal, and off one: plain lines of label and text, without boxes."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from lossdoctor.core.diagnosis import Diagnosis, Finding
from lossdoctor.report import machine, speed, trial, view, words
from lossdoctor.report.checks import checks
from lossdoctor.report.sparkline import sparkline

LABEL_WIDTH = 10
WIDEST = 100  # a line of text longer than this is hard to read
MOST_EVIDENCE = 3  # of one finding; the JSON and HTML reports hold all
MOST_LINES = 5  # of one kind of finding that takes a line each
STYLES = {"error": "bold red", "warning": "bold yellow", "healthy": "bold green", "undetermined": "bold magenta", "advice": "cyan"}


def render(diagnosis: Diagnosis, console: Console, *, source: bool = False) -> None:
    """Print the report of a diagnosis.

    Args:
        console: where to print; its width, colours and encoding are heeded.
        source: show the line of the user's script beside its place.

    Example:
        >>> render(Diagnosis(), Console(width=80))
        lossdoctor: Healthy: no known fault was found
    """
    page = _Page(console)
    page.title(f"lossdoctor: {view.headline(diagnosis)}", view.level(diagnosis))
    for number, cause in enumerate(view.causes(diagnosis)):
        if number:
            page.title(f"and: {words.clean(cause.title)} ({view.sure(cause)})", cause.severity)
        _cause(page, diagnosis, cause, source)
    _run(page, diagnosis)
    _rest(page, diagnosis)


def text(diagnosis: Diagnosis, width: int = 80) -> str:
    """Return the report as plain text, for `print` and log files.

    Example:
        >>> text(Diagnosis())
        'lossdoctor: Healthy: no known fault was found\\n'
    """
    stream = io.StringIO()
    render(diagnosis, Console(file=stream, width=width, color_system=None, force_terminal=False))
    return stream.getvalue()


class _Page:
    """Print labelled paragraphs with a hanging indent."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.ascii_only = console.options.ascii_only
        self.width = max(30, min(console.width, WIDEST))

    def title(self, line: str, level: str) -> None:
        self._print(self._safe(line), STYLES.get(level, ""), "", self.width)

    def row(self, label: str, line: str, style: str = "", *, wrap: bool = True) -> None:
        """Print a label and its text; a command is not wrapped, so that it can be copied whole."""
        if not line:
            return
        indent = f"  {label:<{LABEL_WIDTH}}"
        self._print(self._safe(line), style, indent, self.width if wrap else 10 * words.LONGEST)

    def _safe(self, line: str) -> str:
        return line.encode("ascii", "backslashreplace").decode() if self.ascii_only else line

    def _print(self, line: str, style: str, indent: str, width: int) -> None:
        for number, part in enumerate(Text(line).wrap(self.console, width - len(indent))):
            lead = indent if number == 0 else " " * len(indent)
            part.rstrip()
            self.console.print(Text.assemble((lead, "dim"), (part.plain, style)), soft_wrap=True, highlight=False)


def _cause(page: _Page, diagnosis: Diagnosis, cause: Finding, source: bool) -> None:
    page.row("fault", f"{cause.code} {words.clean(cause.slug)}, {cause.severity}")
    page.row("where", view.place(cause, source=source), wrap=False)
    for number, item in enumerate(cause.evidence[:MOST_EVIDENCE]):
        page.row("seen" if number == 0 else "", words.evidence(item))
    page.row("gain", view.gain(cause))
    page.row("fix", words.clean(cause.fix), "bold")
    _trial(page, cause)
    _several(page, "explains", [words.name(each) for each in view.explained(diagnosis, cause)])


def _trial(page: _Page, finding: Finding) -> None:
    page.row("trial", trial.summary(finding))
    for arm, curve in trial.curves(finding).items():
        line = sparkline([loss for _, loss in curve], min(60, page.width - LABEL_WIDTH - 14), ascii_only=page.ascii_only)
        page.row("", f"{arm:<10}{line}", wrap=False)


def _run(page: _Page, diagnosis: Diagnosis) -> None:
    page.row("machine", words.machine(diagnosis.bigger_machine) if diagnosis.trainings else "")
    _several(page, "condition", machine.conditions(diagnosis))
    page.row("step", machine.step(diagnosis))
    page.row("measured", machine.measured(diagnosis))
    _several(page, "devices", machine.devices(diagnosis))
    for number, line in enumerate(machine.memory(diagnosis)):
        page.row("memory" if number == 0 else "", line, wrap=False)
    _several(page, "lever", speed.levers(diagnosis), 12)
    page.row("together", speed.combined(diagnosis))
    page.row("to do", speed.answer(diagnosis), "bold")
    _several(page, "lines", speed.lines(diagnosis))
    _several(page, "waits", speed.waits(diagnosis))
    losses = [loss for _, loss in diagnosis.curve]
    if losses:
        page.row("loss", sparkline(losses, min(60, page.width - LABEL_WIDTH - 4), ascii_only=page.ascii_only), wrap=False)
    page.row("run", view.vitals(diagnosis))
    for number, line in enumerate(checks(diagnosis)):
        page.row("checked" if number == 0 else "", line)
    page.row("time", view.time(diagnosis))


def _rest(page: _Page, diagnosis: Diagnosis) -> None:
    _several(page, "advice", [_advice(each) for each in view.advice(diagnosis)])
    _several(page, "suspected", [f"{words.name(each)} ({view.sure(each)})" for each in view.suspected(diagnosis)])
    page.row("next", words.clean(diagnosis.next_step), "bold", wrap=False)
    page.row("judged", view.judged(diagnosis))
    broke = [f"{each.code} {each.slug} could not be judged, our error: {each.missing}" for each in view.with_status(diagnosis, "broke")]
    _several(page, "broke", [words.clean(line) for line in broke])
    _several(page, "note", [words.clean(note) for note in diagnosis.notes])


def _advice(finding: Finding) -> str:
    saved = view.gain(finding)
    return f"{words.name(finding)}. {words.clean(finding.fix)}" + (f" ({saved})" if saved else "")


def _several(page: _Page, label: str, lines: list[str], most: int = MOST_LINES) -> None:
    for number, line in enumerate(lines[:most]):
        page.row(label if number == 0 else "", line)
    if len(lines) > most:
        page.row("", f"and {len(lines) - most} more")
