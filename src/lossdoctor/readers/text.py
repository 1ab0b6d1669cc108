"""Whatever a script printed: any line with named figures. The last resort of all readers."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, pairs
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table

# Headings that only count, or only say of which split the next figures are.
CONTEXT = re.compile(
    r"(?:(?P<split>train(?:ing)?|val(?:id(?:ation|ating)?)?|eval(?:uat(?:ion|ing|e))?|test(?:ing)?)\b.{0,20})?"
    r"\bepoch\W{0,3}(?P<epoch>\d+)"
    r"|^\W*(?:.{0,40}?\W)?(?P<split2>train(?:ing)?|validat(?:ion|ing)|valid|eval(?:uation|uating)?|test(?:ing)?)\W*(?:set|results?|stats?|metrics)?\W*:?\s*$",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\d|nan|inf", re.IGNORECASE)


def finish(table: Table) -> Table:
    """Leave out what is no series: settings that were printed once, and words of free text beside a number."""
    counts = {name: len(column) for name, column in table.columns.items()}
    losses = max((counts[name] for name in counts if meaning(name).kind in ("loss", "metric")), default=0)
    fewest = min(3, losses) if losses < 50 else max(3, losses // 500)
    kept = {name: column for name, column in table.columns.items() if counts[name] >= fewest or meaning(name).kind in ("loss", "metric")}
    table.columns = kept
    return table


FORMAT = LineFormat("text", _FIGURE, context=CONTEXT, finish=finish, sure=0.05)


def knows(source: Source) -> float:
    """Be hardly sure, of any text in which some line has a named figure that a log would have."""
    if source.is_folder or (b"\x00" in source.head[:512] and source.encoding == "utf-8"):
        return 0.0
    for line in re.split(r"[\r\n]+", source.text):
        if any(meaning(pair.name).kind in ("loss", "metric") for pair in pairs(line)):
            return 0.1
    return 0.02


READERS = (Reader("text", knows, lambda source: [FORMAT.table(source.lines())]),)
