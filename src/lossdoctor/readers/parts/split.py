"""Split a log into the runs that it holds: restarts, resumed runs, repeated headers, ranks that write into one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats, Integers
from lossdoctor.readers.parts.axis import Axis, curve_columns, find
from lossdoctor.readers.parts.roles import Roles
from lossdoctor.readers.parts.table import Column, Table

# More runs than this in one log are not told apart by anyone; the rest goes with the last.
MOST_RUNS = 500


@dataclass
class Part:
    """Hold one run of a log.

    Args:
        table: its rows.
        axis: where they stand.
        how: why it was split off: `first`, `restart`, `rank`, or `marked`.
        resumes: places within it at which it was resumed from a checkpoint: dicts of `at`, `lost` (rows that it redid).
    """

    table: Table
    axis: Axis
    how: str = "first"
    resumes: list[dict[str, Any]] = field(default_factory=list)


def split(table: Table, roles: Roles) -> list[Part]:
    """Split a log into runs, in order; one that was resumed stays one, without the rows that it did twice."""
    parts: list[Part] = []
    for name, piece in _ranks(table, roles):
        axis = find(piece, roles)
        made = _runs(piece, roles, axis)
        if name and made:
            made[0].how = "rank"
        parts += made
    return parts


def _ranks(table: Table, roles: Roles) -> list[tuple[str, Table]]:
    rank = table.columns.get(roles.one("rank") or "")
    curve = table.columns.get(next(iter(curve_columns(roles)), ""))
    named = 0.0 if rank is None or curve is None else float(np.isin(curve.rows, rank.rows).mean())
    # lines of one process beside lines that several print: the figures themselves do not come from ranks
    if rank is None or named < 0.5 or len(np.unique(rank.values)) < 2:
        return _unnamed_ranks(table, roles)
    found = np.unique(rank.values[np.isfinite(rank.values)])[:64]
    pieces = [(f"rank {int(number)}", _take(table, rank.rows[rank.values == number])) for number in found]
    with_curve = [(name, piece) for name, piece in pieces if any(column in piece.columns for column in curve_columns(roles))]
    return with_curve or [("", table)]


def _unnamed_ranks(table: Table, roles: Roles) -> list[tuple[str, Table]]:
    """Tell ranks that write the same step one after another: every step stands there the same number of times, with other values."""
    axis = find(table, roles)
    if axis.unit != "step" or len(axis.rows) < 8:
        return [("", table)]
    runs = np.flatnonzero(np.concatenate([[True], np.diff(axis.places) != 0, [True]]))
    lengths = np.diff(runs)
    times = int(np.median(lengths))
    column = table.columns[curve_columns(roles)[0]]
    differ = np.diff(column.values)[np.diff(axis.places) == 0]
    if times < 2 or (lengths == times).mean() < 0.8 or not (np.abs(differ) > 0).mean() > 0.5:
        return [("", table)]
    turn = np.concatenate([np.arange(length) for length in lengths])
    return [(f"rank {number}", _take(table, axis.rows[turn == number])) for number in range(times)]


def _take(table: Table, rows: Integers) -> Table:
    """Keep some rows only, numbered from 0."""
    kept: dict[str, Column] = {}
    for name, column in table.columns.items():
        hit = np.isin(column.rows, rows)
        if hit.any():
            kept[name] = Column(np.searchsorted(rows, column.rows[hit]), column.values[hit])
    return Table(table.format, kept, len(rows), dict(table.facts), [], list(table.notes), dict(table.roles))


def _runs(table: Table, roles: Roles, axis: Axis) -> list[Part]:
    if len(axis.rows) == 0:
        return [Part(table, axis)]
    cuts, resumes = _boundaries(table, roles, axis)
    parts: list[Part] = []
    edges = [0, *cuts, len(axis.rows)]
    for number, (low, high) in enumerate(pairwise(edges)):
        start = _first_row(table, axis, low) if number else 0
        stop = _first_row(table, axis, high) if high < len(axis.rows) else table.rows
        piece = table.between(start, stop)
        piece.facts.update(settings(table, stop))
        own = Axis(axis.rows[low:high] - start, axis.places[low:high], axis.unit, None if axis.epochs is None else axis.epochs[low:high])
        part = Part(piece, own, "restart" if number else "first")
        parts.append(_without_repeats(part, roles, [at - low for at in resumes if low < at < high]))
    return parts


def _first_row(table: Table, axis: Axis, index: int) -> int:
    """Return the row at which a run begins: its first row of the curve, or the mark before it."""
    row, before = int(axis.rows[index]), int(axis.rows[index - 1]) if index else -1
    marks = [mark.row for mark in table.marks if before < mark.row <= row and mark.kind in ("start", "header")]
    return marks[0] if marks else row


def _boundaries(table: Table, roles: Roles, axis: Axis) -> tuple[list[int], list[int]]:
    """Return the indices at which a run begins anew, and at which it was resumed."""
    places = axis.places
    starts = _marked(table, axis, ("start", "header"))
    cuts: list[int] = []
    resumes: list[int] = []
    back = np.flatnonzero(np.diff(places) <= 0) + 1
    again = _same_again(table, roles, axis)
    # one row an epoch: the first epoch twice is a run that died in it
    single = axis.unit == "epoch" and len(places) > 1 and float((np.diff(places) == 0).mean()) < 0.4
    for index in sorted({*back.tolist(), *starts}):
        if index in again or len(cuts) + len(resumes) >= MOST_RUNS:
            continue
        fell = places[index] < places[index - 1]
        first = places[cuts[-1] if cuts else 0]
        alone = single and places[index] == first and index - 1 == (cuts[-1] if cuts else 0)
        if not fell and index not in starts and not alone:
            continue  # the same place twice, and nothing says that a run began: a second line on it
        begin = cuts[-1] if cuts else 0
        near = _usual_gap(places[begin : min(index, begin + 1000)])
        if places[index] <= first + near:
            cuts.append(index)
        elif fell or places[index] == places[index - 1]:
            resumes.append(index)
    return cuts, sorted({*resumes, *(_marked(table, axis, ("resume",)) - set(cuts))})


def settings(table: Table, stop: int) -> dict[str, Any]:
    """Return what the log says of the run that ends before a row: the last word of each setting."""
    held = {name[1:]: column.between(0, stop) for name, column in table.columns.items() if name.startswith(".")}
    return {name: float(column.values[-1]) for name, column in held.items() if len(column)}


def _marked(table: Table, axis: Axis, kinds: tuple[str, ...]) -> set[int]:
    found = {int(np.searchsorted(axis.rows, mark.row)) for mark in table.marks if mark.kind in kinds}
    return {index for index in found if 0 < index < len(axis.rows)}


def _usual_gap(places: Floats) -> float:
    """Return how far the first values of a run may lie apart: a restarted run may log its first value one gap later."""
    gaps = np.diff(places)
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else 0.0


def _same_again(table: Table, roles: Roles, axis: Axis) -> set[int]:
    """Find lines that repeat the one before: the same place and the same values (two handlers, several ranks)."""
    values = [table.columns[name] for name in curve_columns(roles)]
    same = np.diff(axis.places) == 0
    for column in values:
        held = column.at(axis.rows)
        same &= (np.diff(held) == 0) | (np.isnan(held[1:]) & np.isnan(held[:-1]))
    return set((np.flatnonzero(same) + 1).tolist())


def _without_repeats(part: Part, roles: Roles, resumes: list[int]) -> Part:
    """Drop the rows that a resumed run did again (the later ones count), and lines that repeat the one before."""
    places, rows = part.axis.places, part.axis.rows
    keep = np.ones(len(places), dtype=bool)
    for at in resumes:
        lost = keep[:at] & (places[:at] >= places[at])
        part.resumes.append({"at": float(places[at]), "lost": int(lost.sum())})
        keep[:at] &= ~lost
    for again in _same_again(part.table, roles, part.axis):
        keep[again] = False
    if keep.all():
        return part
    epochs = part.axis.epochs
    part.axis = Axis(rows[keep], places[keep], part.axis.unit, None if epochs is None else epochs[keep])
    return part
