"""List all faults that are known, by family."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from lossdoctor.cli import _report

if TYPE_CHECKING:
    from lossdoctor.core.fault import Fault


@click.command()
@click.option("--json", "json", metavar="FILE", help="Write the list as JSON; - is standard output.")
def command(json: str | None) -> None:
    """List all faults that are known, by family. `lossdoctor explain CODE` shows the page of one."""
    from lossdoctor.core.fault import faults

    known = list(faults().values())
    if json is not None:
        _report.write_plain([_facts(fault) for fault in known], json)
    else:
        _print(known)


def _facts(fault: Fault) -> dict[str, str]:
    names = ("code", "slug", "title", "family", "severity", "maturity")
    return {name: str(getattr(fault, name)) for name in names}


def _print(known: list[Fault]) -> None:
    from rich.markup import escape

    table = _report.table("code", "slug", "severity", "maturity", "title")
    for _, family in groupby(known, key=lambda fault: fault.family):
        for fault in family:
            table.add_row(*map(escape, (fault.code, fault.slug, fault.severity, fault.maturity, fault.title)))
        table.add_section()
    _report.print_table(table)
