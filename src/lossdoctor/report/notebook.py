"""The report as one piece of HTML for a notebook: static, no script, no style sheet, an SVG curve."""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import machine, speed, trial, view, words
from lossdoctor.report.sparkline import svg

COLOURS = {"error": "#c62828", "warning": "#e69100", "healthy": "#2e7d32", "undetermined": "#7b1fa2", "advice": "#0277bd"}


def html(diagnosis: Diagnosis) -> str:
    """Return the report as inline HTML; every text in it is escaped.

    Example:
        >>> "Healthy: no known fault was found" in html(Diagnosis())
        True
    """
    curve = Markup(svg([loss for _, loss in diagnosis.curve]))  # numbers only
    return environment().get_template("card.html.j2").render(diagnosis=diagnosis, curve=curve)


@cache
def environment() -> jinja2.Environment:
    """Return the templates of the HTML reports, with autoescape on and the words of all reports at hand."""
    made = jinja2.Environment(loader=jinja2.PackageLoader("lossdoctor.report"), autoescape=True, undefined=jinja2.StrictUndefined)
    made.filters["clean"] = words.clean
    made.globals.update(machine=machine, speed=speed, trial=trial, view=view, words=words, colours=COLOURS)
    return made
