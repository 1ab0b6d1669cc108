"""Show the score of the bench on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossdoctor.bench.matrix import Outcome
from lossdoctor.bench.score import alarms, by_condition, misses, share
from lossdoctor.core.diagnosis import HEALTHY


def score_table(outcomes: Sequence[Outcome]) -> Table:
    """Build the table of planted conditions: per recipe how many rows were named, over all the interval, and other verdicts."""
    recipes = list(dict.fromkeys(outcome.row.recipe for outcome in outcomes))
    table = Table(title="planted and named", title_justify="left")
    table.add_column("planted")
    table.add_column("level")
    for recipe in recipes:
        table.add_column(recipe, justify="right")
    table.add_column("named, 95 % interval", justify="right")
    table.add_column("said instead")
    for (planted, level), group in by_condition(outcomes).items():
        cells = [_cell([outcome for outcome in group if outcome.row.recipe == recipe]) for recipe in recipes]
        table.add_row(planted, level, *cells, str(share(group)), _others(group))
    return table


def _cell(group: Sequence[Outcome]) -> str:
    return f"{sum(outcome.named for outcome in group)}/{len(group)}" if group else ""


def _others(group: Sequence[Outcome]) -> str:
    wrong = [outcome.verdict for outcome in group if not outcome.named]
    return ", ".join(f"{verdict} {wrong.count(verdict)}" for verdict in dict.fromkeys(wrong))


def summary(outcomes: Sequence[Outcome]) -> RenderableType:
    """Build everything that the bench shows: the table, the misses, the false alarms, one line of figures."""
    healthy = [outcome for outcome in outcomes if outcome.row.planted == HEALTHY]
    sick = [outcome for outcome in outcomes if outcome.row.planted != HEALTHY]
    lines = [_line("miss", outcome) for outcome in misses(outcomes)] + [_line("false alarm", outcome) for outcome in alarms(outcomes)]
    last = f"named {share(sick)} of planted rows; {len(alarms(outcomes))} false alarms on {len(healthy)} healthy rows"
    return Group(score_table(outcomes), *lines, Text(last, style="bold"))


def _line(what: str, outcome: Outcome) -> Text:
    row = outcome.row
    said = ", ".join(f"{slug} {probability:.2f}" for slug, _, probability in outcome.said) or "nothing present"
    suspected = ", ".join(f"{slug} {probability:.2f}" for slug, probability in outcome.suspected)
    text = f"{what}: {row.planted} {row.level} on {row.recipe}, seed {row.seed}: {outcome.verdict} ({said}"
    return Text(text + (f"; suspected {suspected}" if suspected else "") + ")" + (f": {outcome.why}" if outcome.why else ""))
