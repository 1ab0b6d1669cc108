"""Join the records of one job's ranks: each rank of a distributed training writes a run folder of its own beside the others'."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Floats, Run, Training

TOGETHER_SECONDS = 300.0  # between the starts of two ranks of one job; ports, and so names of jobs, are used again later
MOST_STEPS = 2_000  # of each rank that are kept for the comparison


def join_ranks(run: Run, folder: Path, load: Callable[[Path], Run]) -> None:
    """Set the fact `ranks` of a run that is one rank of several: what each of them measured, this one among them.

    Each is `rank`, `steps`, `own_seconds` (of a step before the ranks meet: the gap and the forward), `step_seconds`, `hashes`
    (of sampled batches, by step). Ranks whose records are not there, or not yet, are left out.

    Args:
        folder: of the run; its siblings are looked through.
        load: reads the run in a folder.
    """
    if not isinstance(run.facts.get("world_size"), int) or run.facts["world_size"] < 2:
        return
    found = {int(run.facts["rank"]): _figures(run)}
    for sibling in _siblings(run, folder, load):
        found.setdefault(int(sibling.facts["rank"]), _figures(sibling))
    run.facts["ranks"] = [{"rank": rank, **figures} for rank, figures in sorted(found.items()) if figures]


def _siblings(run: Run, folder: Path, load: Callable[[Path], Run]) -> Iterator[Run]:
    for other in sorted(folder.parent.glob("*/run.json"), reverse=True):
        facts = _head(other)
        same = facts.get("job") == run.facts.get("job") and facts.get("rank") != run.facts.get("rank")
        if other.parent == folder or not same or not isinstance(facts.get("rank"), int) or not _together(run.facts, facts):
            continue
        try:
            yield load(other.parent)
        except LossdoctorError:
            continue


def _head(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _together(one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        starts = [datetime.fromisoformat(str(facts["started"])) for facts in (one, other)]
        return abs((starts[0] - starts[1]).total_seconds()) < TOGETHER_SECONDS
    except (KeyError, ValueError, TypeError):
        return False


def _figures(run: Run) -> dict[str, Any]:
    training = max(run.trainings, key=lambda each: each.steps, default=None)
    if training is None or "wall" not in training.signals:
        return {}
    wall = training.signals["wall"]
    own = _aligned(training, "gap_seconds") + _aligned(training, "forward_seconds")
    return {
        "steps": wall.steps[:MOST_STEPS].tolist(),
        "own_seconds": own[:MOST_STEPS].tolist(),
        "step_seconds": float(np.median(np.diff(wall.values))) if len(wall) > 1 else None,
        "hashes": {str(row.step): list(row.get("hashes") or ()) for row in training.rows.get("row_hashes", [])},
    }


def _aligned(training: Training, name: str) -> Floats:
    """Return a signal at the steps of `wall`; NaN where it is missing."""
    wall, signal = training.signals["wall"], training.signals.get(name)
    values = np.full(len(wall), np.nan)
    if signal is not None:
        _, mine, its = np.intersect1d(wall.steps, signal.steps, return_indices=True)
        values[mine] = signal.values[its]
    return values
