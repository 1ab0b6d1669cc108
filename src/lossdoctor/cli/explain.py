"""Show the page of a fault: what you see, why it happens, what to do."""

from __future__ import annotations

import click


@click.command()
@click.argument("fault", metavar="CODE|SLUG")
def command(fault: str) -> None:
    """Show the page of a fault, named by its code or its slug."""
    from rich.console import Console

    from lossdoctor.core.fault import find_fault
    from lossdoctor.report.page import render

    render(find_fault(fault), Console())
