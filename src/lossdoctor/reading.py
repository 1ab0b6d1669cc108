"""Diagnose a log from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lossdoctor import readers
from lossdoctor.shown import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def read(log: Any, *, columns: Mapping[str, str] | None = None, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Report:
    """Diagnose a log, or a table of figures.

    Args:
        log: path of a file or folder, or a table: a dict of lists (`history.history`), a list of dicts, a data frame.
        columns: role to column, where the names do not say it: `{"loss": "my_cost"}`.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.

    Raises:
        LossdoctorError: where there is no such file, or it holds no log.

    Example:
        >>> read({"loss": [2.3, 2.1, float("nan")]}).healthy
        False
    """
    return Report.of(readers.read(log, columns=columns, select=select, ignore=ignore))
