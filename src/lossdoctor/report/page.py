"""The page of a fault, for `lossdoctor explain` and for docs/faults/: all of it comes from the fault's own file."""

from __future__ import annotations

import re

from rich.console import Console
from rich.markdown import Markdown

from lossdoctor.core.fault import HEADINGS, Fault, faults
from lossdoctor.report import words

_SEVERITY = {
    "error": "error: the run cannot reach what it should",
    "warning": "warning: it loses much (score, time or memory)",
    "advice": "advice: worth knowing",
}
_MATURITY = {"preview": "preview: not yet measured well enough to be relied on alone", "stable": "stable"}


def render(fault: Fault, console: Console) -> None:
    """Print the page of a fault.

    Args:
        console: where to print; off a terminal, or on one without Unicode, the page is printed as its Markdown source.

    Example:
        >>> from lossdoctor.core.fault import find_fault
        >>> render(find_fault("LOP001"), Console(width=80))  # doctest: +ELLIPSIS
        # LOP001 zero-grad-missing: Gradients pile up
        ...
    """
    if console.is_terminal and not console.options.ascii_only:
        console.print(Markdown(markdown(fault)))
    else:
        console.print(markdown(fault), end="", markup=False, highlight=False, soft_wrap=True)


def markdown(fault: Fault) -> str:
    """Write the page of a fault as Markdown.

    Example:
        >>> from lossdoctor.core.fault import find_fault
        >>> markdown(find_fault("zero-grad-missing")).splitlines()[0]
        '# LOP001 zero-grad-missing: Gradients pile up'
    """
    parts = [f"# {fault.code} {fault.slug}: {fault.title}", summary(fault), _facts(fault)]
    parts += [f"## {heading}\n\n{fault.section(heading)}" for heading in HEADINGS if fault.section(heading)]
    misses = [example.note for example in fault.examples if example.kind == "known miss"]
    if misses:
        parts.append("## Known misses\n\n" + "\n".join(f"- {note}" for note in misses))
    return "\n\n".join(part for part in parts if part) + "\n"


def index() -> str:
    """Write the list of all faults as a Markdown table, each with a link to its page."""
    rows = [f"| [{each.code}]({each.code}.md) | `{each.slug}` | {each.title} | {each.severity} |" for each in faults().values()]
    head = "# Faults\n\nWhat lossdoctor can name today. `lossdoctor explain CODE` prints a page, `lossdoctor faults` this list.\n"
    return "\n".join([head, "| code | slug | title | severity |", "|---|---|---|---|", *rows]) + "\n"


def summary(fault: Fault) -> str:
    """Return the text above the first heading of a fault's page."""
    return re.split(r"^.+\n-{3,}\n", fault.page, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _facts(fault: Fault) -> str:
    rows = {
        "Severity": _SEVERITY[fault.severity],
        "Maturity": _MATURITY.get(fault.maturity, fault.maturity),
        "Needs": ", ".join(f"`{name}`" for name in fault.needs),
        "Explains": ", ".join(f"`{slug}`" for slug in fault.explains),
        "Settled by": ", ".join(f"`{name}`" for name in fault.decides_with),
        "Bigger machine": words.machine(fault.bigger_machine),
    }
    return "\n".join(f"- **{name}**: {text}" for name, text in rows.items() if text)
