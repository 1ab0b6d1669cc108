"""Whatever a script printed: any line with named figures. The last resort of all readers."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, finish_row, mark, pairs, place
from lossdoctor.readers.parts.names import SPLITS, meaning
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table

_SPLIT = r"train(?:ing)?|val(?:id(?:at(?:ion|ing))?)?|eval(?:uat(?:ion|ing|e))?|test(?:ing)?"
# Headings: `Training epoch: 3`, `Epoch 3/20 (validation)`, `Validation results:`.
_EPOCH = re.compile(
    rf"(?:\b(?P<before>{_SPLIT})\b.{{0,20}})?\bepoch\W{{0,3}}(?P<epoch>\d+)(?:.{{0,12}}\b(?P<after>{_SPLIT})\b)?", re.IGNORECASE
)
_HEADING = re.compile(rf"(?:^|\W)(?P<split>{_SPLIT})\W*(?:set|results?|stats?|metrics|phase|\.\.\.)?\W*$", re.IGNORECASE)
# Settings, not the epoch that it is: `num_epoch`, `epochs`, `max epochs`.
_PLANNED = re.compile(r"\b(?:num|max|total|n|nb)[ _]?(?:train[ _])?epochs?$|\bepochs$", re.IGNORECASE)
_FIGURE = re.compile(r"\d|nan|inf", re.IGNORECASE)
_KEPT = ("loss", "metric", "lr", "grad_norm", "step", "epoch")


def parse(line: str, state: State) -> None:
    """Take every figure of a line that has a loss, a metric or a rate; a line without is a heading, or nothing."""
    row: dict[str, float] = {}
    found = pairs(line)
    heading = _EPOCH.search(line)
    if heading is not None:
        name = heading["before"] or heading["after"]
        state.split = SPLITS.get(name.lower(), "") if name else ""
        state.epoch = float(heading["epoch"])
    for pair in found:
        if _PLANNED.search(pair.name):
            state.builder.setting("planned_epochs", pair.value)
        else:
            place(row, pair.name, pair, state)
    if any(meaning(name).kind in ("loss", "metric") for name in row) and finish_row(row, state):
        return
    state.epoch, state.step = row.get("epoch", state.epoch), row.get("step", state.step)
    other(line, state)


def other(line: str, state: State) -> None:
    """Take from a line without figures which split the next ones belong to, and whether a run begins."""
    if heading := _HEADING.search(line):
        state.split = SPLITS.get(heading["split"].lower(), "")
    mark(line, state)


def finish(table: Table) -> Table:
    """Leave out what is no series: settings that were printed once, and words of free text beside a number."""
    kinds = {name: meaning(name).kind for name in table.columns}
    counts = {name: len(column) for name, column in table.columns.items()}
    most = max((counts[name] for name, kind in kinds.items() if kind in ("loss", "metric")), default=0)
    fewest = min(3, most) if most < 50 else max(3, most // 500)
    kept = [name for name in counts if counts[name] >= fewest or kinds[name] in ("loss", "metric") or name.startswith(".")]
    table.columns = {name: table.columns[name] for name in kept}
    return table


FORMAT = LineFormat("text", _FIGURE, parse, finish=finish, sure=0.05)


def knows(source: Source) -> float:
    """Be hardly sure, of any text in which some line has a named figure that a log would have."""
    if not source.is_text:
        return 0.0
    for line in source.sample_lines:
        if any(meaning(pair.name).kind in ("loss", "metric") for pair in pairs(line)):
            return 0.1
    return 0.02


def read(source: Source) -> list[Table]:
    """Read all lines."""
    return [FORMAT.table(source.lines())]


READERS = (Reader("text", knows, read),)
