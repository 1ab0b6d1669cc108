"""Lightning's `metrics.csv`: sparse rows, `_step` and `_epoch` twins, validation on rows of its own."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.delimited import header_reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table

_SETTING = re.compile(r"^([\w.-]+): *(-?[\d.]+(?:e[-+]?\d+)?)\s*$", re.MULTILINE)


def matches(names: frozenset[str]) -> bool:
    """Tell a header that counts both epochs and steps beside figures."""
    return {"epoch", "step"} <= names and not {"Step", "_step", "time"} & names


def finish(table: Table) -> Table:
    """Leave the rows as they are: they are sparse already."""
    return table


def settings(source: Source) -> dict[str, float]:
    """Read the plain numbers of the `hparams.yaml` beside the file, if there is one."""
    beside = source.path.with_name("hparams.yaml")
    if not source.on_disk or not beside.is_file():
        return {}
    return {name: float(text) for name, text in _SETTING.findall(Source(beside).text)}


_PLAIN = header_reader("Lightning metrics.csv", matches, finish)


def read(source: Source) -> list[Table]:
    """Read the file, and what its hparams.yaml says of the number of classes or words."""
    tables = _PLAIN.read(source)
    held = settings(source)
    for table in tables:
        table.facts.setdefault("settings", held)
    for name in ("vocab_size", "num_classes", "n_classes", "num_labels", "n_vocab"):
        if held.get(name, 0) >= 2:
            for table in tables:
                table.facts.setdefault("classes", int(held[name]))
    return tables


READERS = (type(_PLAIN)(_PLAIN.format, _PLAIN.knows, read),)
