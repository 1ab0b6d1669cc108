"""What a check measured, as pictures: histograms of inputs and targets, classes, memorising, and the loss over the rate.

Plain SVG, so that a report of a check needs no script to show them. Facts may come from another version or a damaged file:
a picture that cannot be drawn is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import words
from lossdoctor.report.sparkline import svg

Facts = Mapping[str, object]
WIDTH, HEIGHT = 320, 90  # pixels
MOST_BARS = 60  # more are narrower than a bar and its gap
_INPUTS = 4  # tensors that a model takes; more say little at a glance


@dataclass(frozen=True)
class Picture:
    """Hold a drawing and what is written below it.

    Args:
        title: what is drawn.
        drawing: SVG.
        below: what the ends mean.
    """

    title: str
    drawing: Markup
    below: str


def pictures(diagnosis: Diagnosis) -> list[Picture]:
    """Return what can be drawn of the experiments of a check, in their order.

    Example:
        >>> look = {"name": "look", "status": "done", "facts": {"inputs": [], "classes": {"0": 30, "1": 10}}}
        >>> [(each.title, each.below) for each in pictures(Diagnosis(experiments=[look]))]
        [('rows of each class', '2 classes, 0 to 1; 10 to 30 rows')]
    """
    drawn: list[Picture] = []
    for experiment in diagnosis.experiments:
        draw = _DRAWN.get(str(experiment.get("name")))
        facts = experiment.get("facts")
        if draw is None or experiment.get("status") != "done" or not isinstance(facts, Mapping):
            continue
        try:
            drawn += draw(facts)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
            continue
    return drawn


def bars(heights: Sequence[float], width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """Draw counts as bars from a common ground.

    Args:
        heights: at least one, none below zero.

    Raises:
        ValueError: where there is none, or one is no number.

    Example:
        >>> bars([1.0, 2.0]).count("<rect")
        2
    """
    values = [float(value) for value in heights]
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise ValueError("bars need counts")
    each, most = width / len(values), max(values) or 1.0
    parts = [
        f'<rect x="{place * each:.1f}" y="{height * (1 - value / most):.1f}" width="{max(0.5, 0.9 * each):.1f}" '
        f'height="{height * value / most:.1f}" fill="currentColor"/>'
        for place, value in enumerate(values)
    ]
    return Markup(_svg("".join(parts), width, height))


def _svg(inside: str, width: int, height: int) -> str:
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="histogram">{inside}</svg>'


def _look(facts: Facts) -> list[Picture]:
    given = facts["inputs"]
    drawn = [] if not isinstance(given, list) else [_histogram(f"values of input {i + 1}", each) for i, each in enumerate(given[:_INPUTS])]
    targets = facts.get("targets")
    drawn += [_histogram("values of the targets", targets)] if isinstance(targets, Mapping) else []
    classes = facts.get("classes")
    drawn += [_classes(classes)] if isinstance(classes, Mapping) and classes else []
    return [each for each in drawn if each is not None]


def _histogram(title: str, facts: Facts) -> Picture | None:
    counts = facts.get("histogram")
    if not isinstance(counts, list):  # of a run by a version that had none
        return None
    low, high = (words.number(float(str(facts[end]))) for end in ("min", "max"))
    return Picture(title, bars(counts[:MOST_BARS]), f"{low} to {high}")


def _classes(counts: Mapping[str, int]) -> Picture:
    names, rows = list(counts), [int(count) for count in counts.values()]
    many = f", the first {MOST_BARS} drawn" if len(rows) > MOST_BARS else ""
    below = f"{len(rows)} classes, {names[0]} to {names[-1]}{many}; {min(rows):,} to {max(rows):,} rows"
    return Picture("rows of each class", bars(rows[:MOST_BARS]), words.clean(below))


def _memorise(facts: Facts) -> list[Picture]:
    courses = facts.get("courses")
    if not isinstance(courses, Mapping):
        return []
    return [_course(str(rate), [float(loss) for loss in losses]) for rate, losses in courses.items() if len(losses) > 1]


def _course(rate: str, losses: list[float]) -> Picture:
    """Draw one rate's losses; on a logarithmic scale, since it is the power of ten that is reached that counts."""
    lowest = min((loss for loss in losses if loss > 0), default=1.0)
    drawing = svg([math.log(max(loss, lowest)) if math.isfinite(loss) else math.nan for loss in losses], WIDTH, HEIGHT)
    below = f"{words.number(losses[0])} to {words.number(losses[-1])} of guessing, in powers of ten"
    return Picture(words.clean(f"memorising at rate {rate}"), Markup(drawing), below)


def _rate_range(facts: Facts) -> list[Picture]:
    rates, losses = facts["rates"], facts["losses"]
    if not isinstance(rates, list) or not isinstance(losses, list) or len(losses) < 2 or len(rates) != len(losses):
        return []
    places = [math.log(float(rate)) for rate in rates]
    marks = "".join(
        _mark(facts.get(name), places, colour) for name, colour in (("low", "#2e7d32"), ("high", "#2e7d32"), ("own", "#c62828"))
    )
    line = svg([float(loss) for loss in losses], WIDTH, HEIGHT)
    if not line:
        return []
    drawing = line.replace("</svg>", marks + "</svg>")
    below = f"rate {words.number(float(rates[0]))} to {words.number(float(rates[-1]))}; red: the run's own; green: between which it falls"
    return [Picture("loss over the rate", Markup(drawing), below)]


def _mark(rate: object, places: Sequence[float], colour: str) -> str:
    """Draw a line across at a rate; nothing for one that was not tried."""
    if not isinstance(rate, (int, float)) or not rate > 0 or not places[0] <= math.log(rate) <= places[-1]:
        return ""
    across = 1 + (math.log(rate) - places[0]) / (places[-1] - places[0]) * (WIDTH - 2)
    return f'<polyline points="{across:.1f},0 {across:.1f},{HEIGHT}" fill="none" stroke="{colour}" stroke-width="1"/>'


_DRAWN: dict[str, Callable[[Facts], list[Picture]]] = {"look": _look, "memorise": _memorise, "rate_range": _rate_range}
