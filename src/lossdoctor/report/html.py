"""The report as one HTML file that opens without a network: the notebook's card, a curve to zoom into, and all findings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from lossdoctor import __version__
from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.fault import HEADINGS, faults
from lossdoctor.report import trial, view
from lossdoctor.report.notebook import environment
from lossdoctor.report.pictures import pictures
from lossdoctor.report.samples import samples

MOST_POINTS = 2000  # of a curve; more slows the page down and shows nothing more on a screen


def write(diagnosis: Diagnosis, path: str | Path) -> None:
    """Write the report to an HTML file.

    Args:
        path: file to write; it is replaced.

    Raises:
        LossdoctorError: where it cannot be written.

    Example:
        >>> write(Diagnosis(), "no/such/folder/report.html")
        Traceback (most recent call last):
        lossdoctor.core.errors.LossdoctorError: cannot write the report to no/such/folder/report.html: No such file or directory
    """
    try:
        Path(path).write_text(page(diagnosis), encoding="utf-8")
    except OSError as error:
        raise LossdoctorError(f"cannot write the report to {path}: {error.strerror}") from error


def page(diagnosis: Diagnosis) -> str:
    """Return the report as the text of an HTML file; plotly comes with it only where there is a curve to show."""
    pages = [(cause.slug, _about(cause.slug)) for cause in view.causes(diagnosis) if cause.slug in faults()]
    curve = _curve({"loss": diagnosis.curve}, with_library=True)  # a run that was repeated has one
    trials = [(finding, _curve(trial.curves(finding), with_library=False)) for finding in trial.tried(diagnosis)]
    template = environment().get_template("report.html.j2")
    shown = {"samples": samples(diagnosis), "pictures": pictures(diagnosis), "trials": trials, "pages": pages}
    return template.render(diagnosis=diagnosis, curve=curve, version=__version__, **shown)


def _about(slug: str) -> Markup:
    """Turn the sections of a fault's page into HTML; the renderer leaves no tags of the text standing."""
    fault = faults()[slug]
    text = "\n\n".join(f"**{heading}**\n\n{fault.section(heading)}" for heading in HEADINGS)
    return Markup(MarkdownIt("js-default").render(text))


def _curve(curves: Mapping[str, list[tuple[int, float]]], *, with_library: bool) -> Markup:
    """Draw curves by name in one picture; nothing where none has two points.

    Args:
        with_library: put plotly's own code beside it, once in a page.
    """
    thinned = {name: thin(curve, MOST_POINTS) for name, curve in curves.items() if len(curve) > 1}
    if not thinned:
        return Markup("")
    import plotly.graph_objects as go  # takes most of a second, so only where a curve is shown

    figure = go.Figure(
        [go.Scatter(x=[p[0] for p in curve], y=[p[1] for p in curve], mode="lines", name=name) for name, curve in thinned.items()]
    )
    figure.update_layout(template="plotly_white", height=300, margin={"l": 50, "r": 10, "t": 10, "b": 40})
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="loss")
    offline = {"displayModeBar": False, "plotlyServerURL": ""}  # the bar holds buttons that go to a server
    return Markup(figure.to_html(full_html=False, include_plotlyjs=with_library, config=offline))


def thin(curve: list[tuple[int, float]], points: int) -> list[tuple[int, float]]:
    """Thin a curve to at most `points` pairs (step, loss), keeping the lowest and highest of each stretch, gaps as NaN.

    Example:
        >>> thin([(0, 1.0), (1, 5.0), (2, 2.0), (3, 0.5), (4, 3.0)], 4)
        [(0, 1.0), (1, 5.0), (3, 0.5), (4, 3.0)]
    """
    if len(curve) <= points:
        return curve
    size = math.ceil(len(curve) / (points // 2))
    kept: set[tuple[int, float]] = set()
    for start in range(0, len(curve), size):
        stretch = [pair for pair in curve[start : start + size] if math.isfinite(pair[1])] or curve[start : start + 1]
        kept |= {min(stretch, key=lambda pair: pair[1]), max(stretch, key=lambda pair: pair[1])}
    return sorted(kept)
