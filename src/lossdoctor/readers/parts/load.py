"""From a log to a `Run`: choose the reader, decide the roles, split the runs, build the trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lossdoctor.core.errors import LossdoctorError, UsageError
from lossdoctor.core.run import Run
from lossdoctor.readers.parts.assemble import assemble, mark_continued
from lossdoctor.readers.parts.axis import curve_columns
from lossdoctor.readers.parts.reader import choose
from lossdoctor.readers.parts.roles import decide
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.split import split
from lossdoctor.readers.parts.table import Builder, Table


def load(source: Source, mapped: Mapping[str, str] | None = None) -> Run:
    """Read a log into a run.

    Args:
        source: the log.
        mapped: column to role, as the user said.

    Raises:
        LossdoctorError: where the log holds no curve; it says what was looked for and what was found.
    """
    if source.size == 0 and not source.is_folder:
        raise LossdoctorError(f"{source.name} is empty: there is nothing to read", status=2)
    tried: list[Table] = []
    for reader in choose(source):
        tables = [table for table in _tables(reader.read, source) if table.rows]
        tried += tables
        if any(curve_columns(decide(table)) for table in tables) or (mapped and tables):
            return run_of(tables, source.name, mapped)
    raise LossdoctorError(_nothing(source, tried), status=2)


def _tables(read: Any, source: Source) -> list[Table]:
    """Read; damage that a reader did not foresee is no reason to give up on the others."""
    try:
        made: list[Table] = read(source)
    except LossdoctorError:
        raise
    except MemoryError as error:
        raise LossdoctorError(f"{source.name} needs more memory than there is; read a part of it") from error
    except (ValueError, LookupError, ArithmeticError, OSError, EOFError, TypeError, AttributeError, RecursionError):
        return []
    return made


def _nothing(source: Source, tried: Sequence[Table]) -> str:
    names = sorted({name for table in tried for name in table.columns if not name.startswith(".")})
    if names:
        held = ", ".join(names[:12])
        return f"{source.name} has no column that is known to be a loss or a metric; name one with --map loss=COLUMN (it has {held})"
    return f"{source.name} holds no training log that is known: no line, row or record with a named loss or metric was found"


def run_of(tables: Sequence[Table], name: str, mapped: Mapping[str, str] | None = None) -> Run:
    """Make a run of tables, each of which may hold several runs.

    Raises:
        UsageError: where a mapped column is in none of the tables.
    """
    with np.errstate(all="ignore"):  # a log may hold any number
        return _run_of(tables, name, mapped)


def _run_of(tables: Sequence[Table], name: str, mapped: Mapping[str, str] | None) -> Run:
    run = Run(facts={"log": name, "format": ", ".join(dict.fromkeys(table.format for table in tables))})
    columns: dict[str, dict[str, Any]] = {}
    trainings = []
    for table in tables:
        roles = decide(table, mapped)
        run.notes += [note for note in (*table.notes, *roles.notes) if note not in run.notes]
        for column, held in table.columns.items():
            if column.startswith("."):
                continue
            columns.setdefault(column, {"column": column, "role": roles.of_column.get(column, ""), "values": 0})["values"] += len(held)
        trainings += [(part, roles, table.facts.get("name")) for part in split(table, roles)]
    run.trainings = [assemble(part, roles, index, len(trainings)) for index, (part, roles, _) in enumerate(trainings)]
    mark_continued(run.trainings)
    for training, (_, _, own) in zip(run.trainings, trainings, strict=True):
        if own:
            training.facts["name"] = own
        training.run_facts = run.facts
    run.facts["columns"] = sorted(columns.values(), key=lambda entry: (not entry["role"], entry["column"]))[:200]
    return run


def table_of(value: Any) -> Table:
    """Make a table of whatever holds columns: a mapping of lists, a list of mappings, a data frame, a Keras `History`.

    Raises:
        UsageError: where it is nothing of the kind.

    Example:
        >>> table_of({"loss": [2.0, 1.0]}).rows
        2
    """
    from lossdoctor.readers.parts.records import add_lists, flat

    builder = Builder("table")
    value = getattr(value, "history", value)
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        value = {str(name): value[name].tolist() for name in value.columns}
    if isinstance(value, Mapping):
        add_lists(builder, {str(name): np.asarray(held).ravel().tolist() for name, held in value.items() if _is_list(held)})
    elif isinstance(value, list | tuple):
        rows = [flat(row) if isinstance(row, Mapping) else {"loss": float(row)} for row in value]
        for row in rows:
            builder.add(row)
    else:
        raise UsageError(f"read() takes a path or a table (a dict of lists, a list of dicts, a data frame), not {type(value).__name__}")
    return builder.table()


def _is_list(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__len__")
