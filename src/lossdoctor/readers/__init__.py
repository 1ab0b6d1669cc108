"""Read what is left of a training run, a log, and diagnose it. No framework is imported, nothing from a log is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Run


def load(path: str | Path, columns: Mapping[str, str] | None = None) -> Run:
    """Read a log into a run, one training for each run that it holds.

    Args:
        path: file or folder; `-` is standard input.
        columns: role to column, where the names do not say it: `{"loss": "my_cost"}`.

    Raises:
        LossdoctorError: where there is no such file, or it holds no log.

    Example:
        >>> import tempfile, pathlib
        >>> log = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
        >>> _ = log.write_text("epoch,loss\\n0,2.0\\n1,1.5\\n")
        >>> load(log).trainings[0].series("loss").values.tolist()
        [2.0, 1.5]
    """
    from lossdoctor.core.store import load_run
    from lossdoctor.readers.parts import load as parts
    from lossdoctor.readers.parts.roles import parse_map
    from lossdoctor.readers.parts.source import Source

    source = Source(path)
    if source.is_folder and (source.path / "run.json").is_file():
        return load_run(source.path)
    return parts.load(source, parse_map(tuple(f"{role}={column}" for role, column in (columns or {}).items())))


def read(log: Any, *, columns: Mapping[str, str] | None = None, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Diagnosis:
    """Diagnose a log, or a table of figures.

    Args:
        log: path of a file or folder (of a folder with several runs the worst is reported), or a table: a dict of lists
            (`history.history`), a list of dicts, a data frame.
        columns: role to column, where the names do not say it: `{"loss": "my_cost"}`.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.

    Raises:
        LossdoctorError: where there is no such file, or it holds no log.

    Example:
        >>> read({"loss": [2.3, 2.1, float("nan")]}).healthy
        False
    """
    from lossdoctor.readers.compare import compare, report
    from lossdoctor.readers.folders import find
    from lossdoctor.readers.parts import load as parts
    from lossdoctor.readers.parts.roles import parse_map

    mapped = parse_map(tuple(f"{role}={column}" for role, column in (columns or {}).items()))
    if isinstance(log, str | Path) and Path(log).is_dir():
        runs = find(Path(log), mapped)
        if not runs:
            raise LossdoctorError(f"no training log was found in the folder {str(log)!r}", status=2)
    elif isinstance(log, str | Path):
        runs = [(str(log), load(log, columns))]
    else:
        runs = [("table", parts.run_of([parts.table_of(log)], "table", mapped))]
    return report(compare(runs, select=select, ignore=ignore))
