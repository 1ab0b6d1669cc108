"""Trackers that keep a SQLite file: MLflow (table `metrics` of key and value) and Trackio (rows of JSON).

The file is opened read-only; only plain tables are read, so that no trigger, view or function of the file runs.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import flat
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

_MAGIC = b"SQLite format 3\x00"
# A database that keeps the engine busy for longer is not a tracker's: instructions of its virtual machine.
MOST_INSTRUCTIONS = 2_000_000_000
# MLflow stores infinity as the largest double that its databases all hold.
_INFINITE = 1.79e308


def knows(source: Source) -> float:
    """Be sure of the file's mark."""
    return 0.95 if source.head.startswith(_MAGIC) else 0.0


def read(source: Source) -> list[Table]:
    """Read the runs of a tracker, one table each."""
    with _file(source) as path, contextlib.closing(_connect(path)) as database:
        try:
            names = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")} if "metrics" in names else set()
            if {"key", "value", "step"} <= columns:
                return _mlflow(database, columns)
            if "metrics" in columns:
                return _trackio(database, columns)
        except sqlite3.Error as error:
            table = Table("SQLite")
            table.notes.append(f"the database is damaged ({error})")
            return [table]
    return []


@contextlib.contextmanager
def _file(source: Source) -> Iterator[Path]:
    if source.on_disk:
        yield source.path
        return
    with tempfile.NamedTemporaryFile(suffix=".db") as held:
        for block in source.blocks():
            held.write(block)
        held.flush()
        yield Path(held.name)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA query_only = ON")
    left = [MOST_INSTRUCTIONS // 100_000]

    def spend() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    database.set_progress_handler(spend, 100_000)
    return database


def _mlflow(database: sqlite3.Connection, columns: set[str]) -> list[Table]:
    run = "run_uuid" if "run_uuid" in columns else "''"
    time = "timestamp" if "timestamp" in columns else "0"
    nan = "is_nan" if "is_nan" in columns else "0"
    query = f"SELECT {run}, step, {time}, key, value, {nan} FROM metrics ORDER BY {run}, step, {time}"
    builders: dict[str, Builder] = {}
    row: dict[str, float] = {}
    place: tuple[str, float] | None = None
    for name, step, when, key, value, is_nan in database.execute(query):
        if place != (name, step):
            _flush(builders, place, row)
            place, row = (name, step), {"step": float(step or 0)}
        figure = number(value)
        if figure is not None:
            row[str(key)] = float("nan") if is_nan else _unbound(figure)
            row["timestamp"] = float(number(when) or 0.0) / 1000.0
    _flush(builders, place, row)
    return [builder.table() for builder in builders.values()]


def _unbound(value: float) -> float:
    return float("inf") if value > _INFINITE else float("-inf") if value < -_INFINITE else value


def _flush(builders: dict[str, Builder], place: tuple[str, float] | None, row: dict[str, float]) -> None:
    if place is None or len(row) < 2:
        return
    builder = builders.setdefault(place[0], Builder("MLflow database"))
    builder.fact("name", place[0])
    builder.add(row)


def _trackio(database: sqlite3.Connection, columns: set[str]) -> list[Table]:
    run = "run_name" if "run_name" in columns else "''"
    step = "step" if "step" in columns else "rowid"
    builders: dict[str, Builder] = {}
    for name, at, text in database.execute(f"SELECT {run}, {step}, metrics FROM metrics ORDER BY {run}, rowid"):
        try:
            value = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(value, dict) and (row := flat(value)):
            builder = builders.setdefault(str(name), Builder("Trackio database"))
            builder.fact("name", str(name))
            builder.add({"step": float(number(at) or 0.0), **row})
    return [builder.table() for builder in builders.values()]


READERS = (Reader("SQLite", knows, read),)
