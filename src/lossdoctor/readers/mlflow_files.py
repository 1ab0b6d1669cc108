"""MLflow's file store: one text file for each metric, lines of time, value and step; names with a slash are folders."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from lossdoctor.readers.parts.numbers import plain
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Column, Table

FORMAT = "MLflow file store"
_LINE = re.compile(rb"^\d{9,16} \S+(?: -?\d+)?\s*$")
MOST_METRICS = 4000


def knows(source: Source) -> float:
    """Be sure of a folder with metric files, and of one such file."""
    if source.is_folder:
        return 0.95 if metrics_folder(source.path) else 0.0
    lines = source.head[:4096].splitlines()[:20]
    return 0.9 if lines and all(_LINE.match(line) for line in lines[:-1] or lines) else 0.0


def metrics_folder(folder: Path) -> Path | None:
    """Return the metric folder of a run: the one in it, or itself where it holds metric files and nothing else."""
    return next((place for place in (folder / "metrics", folder) if place.is_dir() and _holds(place)), None)


def _holds(folder: Path) -> bool:
    files = _files(folder)[:8]
    return bool(files) and all(_is_metric(path) for path in files)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))[:MOST_METRICS]


def _is_metric(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return bool(_LINE.match(stream.readline()))
    except OSError:
        return False


def read(source: Source) -> list[Table]:
    """Read each run; values of one step make one row."""
    if not source.is_folder:
        return [_table({source.path.name: _values(source)}, "")]
    folder = metrics_folder(source.path)
    if folder is None:
        return []
    held = {path.relative_to(folder).as_posix(): _values(Source(path)) for path in _files(folder) if _is_metric(path)}
    return [_table(held, source.path.name)]


def _values(source: Source) -> list[tuple[float, float, float]]:
    found: list[tuple[float, float, float]] = []
    for line in source.lines():
        parts = line.split()
        figures = [plain(part) for part in parts[:3]]
        if len(parts) in (2, 3) and None not in figures:
            time, value, step = (*figures, float(len(found)))[:3]
            found.append((time, value, step))  # type: ignore[arg-type]
    return found


def _table(metrics: dict[str, list[tuple[float, float, float]]], name: str) -> Table:
    """Lay the metrics side by side, by step; a step that was written again counts once, with its last value."""
    steps = np.unique([step for values in metrics.values() for _, _, step in values])
    table = Table(FORMAT, rows=len(steps), facts={"name": name} if name else {})
    table.columns["step"] = Column.of(steps)
    times = np.full(len(steps), np.nan)
    for metric, values in metrics.items():
        last = {step: value for _, value, step in values}
        own = np.array(sorted(last))
        rows = np.searchsorted(steps, own)
        table.columns[metric] = Column.of([last[step] for step in own.tolist()], rows)
        times[rows] = _times(values, own)
    known = np.flatnonzero(np.isfinite(times))
    table.columns["timestamp"] = Column(known, times[known] / 1000.0)
    return table


def _times(values: list[tuple[float, float, float]], steps: np.ndarray) -> list[float]:
    last = {step: time for time, _, step in values}
    return [last[step] for step in steps.tolist()]


READERS = (Reader(FORMAT, knows, read),)
