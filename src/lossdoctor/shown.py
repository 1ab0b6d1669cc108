"""A diagnosis that shows itself: as text when printed, with colours by rich, as HTML in a notebook."""

from __future__ import annotations

import dataclasses
import io
import shutil
from typing import TYPE_CHECKING, Any

from lossdoctor.core.diagnosis import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.text import Text


@dataclasses.dataclass(repr=False)
class Report(Diagnosis):
    """Hold a diagnosis and show it wherever it is looked at.

    Example:
        >>> print(Report())
        lossdoctor: Healthy: no known fault was found
    """

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> Report:
        """Make a diagnosis show itself."""
        return cls(**{field.name: getattr(diagnosis, field.name) for field in dataclasses.fields(Diagnosis)})

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, as `--json` writes it.

        Example:
            >>> Report().to_json()["schema"]
            'lossdoctor/report/1'
        """
        from lossdoctor.report.json import to_json

        return to_json(self)

    def to_html(self, path: str) -> None:
        """Write the report to an HTML file that opens without a network.

        Raises:
            LossdoctorError: where it cannot be written.
        """
        from lossdoctor.report.html import write

        write(self, path)

    def __str__(self) -> str:
        from lossdoctor.report.terminal import text

        return text(self, width=shutil.get_terminal_size().columns).rstrip("\n")

    def __repr__(self) -> str:
        return f"<Report: {self.verdict}, {len(self.present)} present>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.console import Console as Paper
        from rich.text import Text

        from lossdoctor.report.terminal import render

        paper = Paper(file=io.StringIO(), width=options.max_width, force_terminal=console.is_terminal, no_color=console.no_color)
        with paper.capture() as caught:
            render(self, paper)
        yield Text.from_ansi(caught.get())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what a notebook shows: HTML without a script, and plain text where there is none."""
        from lossdoctor.report.notebook import html

        return {"text/html": html(self), "text/plain": str(self)}
