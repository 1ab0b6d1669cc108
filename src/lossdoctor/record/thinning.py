"""Rewrite a segment at half density: every second step and every second sample of a signal go, all else stays."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def pack(values: array[float]) -> str:
    """Encode numbers as the base64 of little-endian floats (every machine that torch runs on is little-endian).

    Example:
        >>> pack(array("d", [1.0]))
        'AAAAAAAA8D8='
    """
    return base64.b64encode(values.tobytes()).decode()


def halve(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a segment with every second step and every second sample of a signal left out.

    The `steps` lines of a track become one, at the place of the first.
    """
    lines = list(_lines(path))
    joined = {track: _join(lines, track) for track in dict.fromkeys(line["track"] for line in lines if line["kind"] == "steps")}
    seen: dict[tuple[Any, Any], int] = {}
    for line in lines:
        if line["kind"] == "steps":
            if line["track"] in joined:
                yield {"kind": "steps", "track": line["track"], "columns": joined.pop(line["track"])}
        elif line["kind"] == "sample" and line["step"] > 0:
            key = (line["track"], line["signal"])
            seen[key] = seen.get(key, 0) + 1
            if seen[key] % 2:
                yield line
        else:
            yield line


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for raw in stream:
            try:
                yield json.loads(raw)
            except ValueError:
                continue  # cut by a full disk


def _join(lines: list[dict[str, Any]], track: int) -> dict[str, str]:
    """Join the columns of a track's lines and keep every second row; a column that a line lacks is NaN there."""
    parts = [
        {name: _unpack(text) for name, text in line["columns"].items()}
        for line in lines
        if line["kind"] == "steps" and line["track"] == track
    ]
    columns: dict[str, array[float]] = {name: array("d") for part in parts for name in part}
    for part in parts:
        for name, values in columns.items():
            values.extend(part.get(name) or [float("nan")] * len(part["step"]))
    return {name: pack(_half(values)) for name, values in columns.items()}


def _half(values: array[float]) -> array[float]:
    """Keep every second value, and the last: where a run ended matters."""
    return values[::2] + values[-1:] if len(values) % 2 == 0 else values[::2]


def _unpack(text: str) -> array[float]:
    values = array("d")
    values.frombytes(base64.b64decode(text))
    return values
