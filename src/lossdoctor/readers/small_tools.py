"""Logs of tools that need a few words only: Marian, Kaldi, MLX-LM, ClearML's and Comet's offline records."""

from __future__ import annotations

import re
from typing import Any

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import document, line_objects, lines_reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

_MARIAN = re.compile(r"Ep\. (?P<epoch>\d+) : Up\. (?P<step>\d+) :(?P<rest>.*)")
_MARIAN_FIGURE = re.compile(r"(Cost|cross-entropy|ce-mean-words|perplexity|bleu|L\.r\.|translation)\s*:?\s+(-?[\d.e+-]+)", re.IGNORECASE)
_KALDI = re.compile(r"Overall average (?:objective function|log-probability)\b[^=]{0,200}?(?:is|=) *(-?[\d.]+) over")
_KALDI_SUM = re.compile(r"Overall average objective function\b.{0,200}= *(-?[\d.]+) over")


def marian(line: str, state: State) -> None:
    """Take a line; the word `valid` stands in front of validations."""
    match = _MARIAN.search(line)
    if match is None:
        return
    prefix = "valid " if "[valid]" in line else ""
    row = {
        (name if name.lower() == "l.r." else prefix + name): value
        for name, text in _MARIAN_FIGURE.findall(match["rest"])
        if (value := number(text)) is not None
    }
    row = {"lr" if name == "L.r." else name.replace("ce-mean-words", "ce"): value for name, value in row.items()}
    if row:
        state.add({**row, "epoch": float(match["epoch"]), "step": float(match["step"])})


def kaldi(line: str, state: State) -> None:
    """Take an objective function, which rises towards 0, as a loss: its negative."""
    match = _KALDI_SUM.search(line) or _KALDI.search(line)
    value = number(match[1] if match else "")
    if value is not None:
        state.add({"loss": -value})


def mlx(line: str, state: State) -> None:
    """Take a line `Iter 5: Train loss 2.1, Learning Rate 2e-4, ...`."""
    row = {"step" if pair.name == "Iter" else pair.name: pair.value for pair in pairs(line)}
    state.add(
        {name: value for name, value in row.items() if name in ("step", "Train loss", "Val loss", "Learning Rate", "Tokens/sec", "It/sec")}
    )


def comet(record: dict[str, Any], builder: Builder) -> dict[str, Any] | None:
    """Take a metric message."""
    payload = record.get("payload") or {}
    metric = payload.get("metric") if isinstance(payload, dict) else None
    if not isinstance(metric, dict) or "metricName" not in metric:
        return None
    name = f"{payload['context']}/{metric['metricName']}" if payload.get("context") else str(metric["metricName"])
    return {name: metric.get("metricValue"), "step": metric.get("step"), "epoch": metric.get("epoch")}


def _clearml_knows(source: Source) -> float:
    return 0.9 if all(word in source.text[:5000] for word in ('"metric"', '"variant"', '"iter"', '"value"')) else 0.0


def _clearml(source: Source) -> list[Table]:
    builder = Builder("ClearML offline")
    value = document(source)
    records = value if isinstance(value, list) else [item for item in line_objects(source) if item]
    for record in records:
        if isinstance(record, dict) and (figure := number(record.get("value"))) is not None:
            builder.add({f"{record.get('variant')}/{record.get('metric')}": figure, "step": number(record.get("iter")) or 0.0})
    return [builder.table()]


READERS = (
    LineFormat("Marian log", _MARIAN, marian, sure=0.93).reader(),
    LineFormat("Kaldi log", _KALDI, kaldi, sure=0.93).reader(),
    LineFormat("MLX-LM output", re.compile(r"^Iter \d+: (?:Train|Val) loss"), mlx, sure=0.93).reader(),
    lines_reader("Comet offline", frozenset({"payload", "type"}), comet),
    Reader("ClearML offline", _clearml_knows, _clearml),
)
