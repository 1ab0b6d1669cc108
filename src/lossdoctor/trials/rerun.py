"""The experiment `rate` where captured steps cannot be replayed: the script again, in a child, with the rate that moves weights by 1 %."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.core.run import Training
from lossdoctor.core.store import load_run
from lossdoctor.derive.update import update_sizes
from lossdoctor.launch.child import Repetition, repeat

STEPS = 150  # as in the replayed experiment
HEALTHY_RATIO = 0.01
START_SECONDS = 3.0  # importing torch and isolating, where the run itself does not tell


def expected_seconds(training: Training, steps: int = STEPS) -> float:
    """Return about how long one repetition of the first steps takes: to the first step, and the steps.

    Example:
        >>> from lossdoctor.core.run import Series
        >>> expected_seconds(Training(signals={"wall": Series.of([2.0, 2.1, 2.2])}), 10)
        6.0
    """
    wall = training.series("wall").finite()
    step = float(np.median(np.diff(wall.values))) if len(wall) > 1 else 0.0
    return round(START_SECONDS + wall.first + steps * step, 1)


def rate_in_child(folder: Path, training: Training, seconds: float) -> dict[str, Any]:
    """Return the line of the experiment `rate`, from one repetition, and a second untreated one where the first loss differs.

    Args:
        folder: of the watched run.
        training: its first training.
        seconds: time limit for all of it.
    """
    begun = time.monotonic()
    status, facts = "unknown", dict[str, Any]()
    expected = expected_seconds(training)
    sizes = update_sizes(training)
    if expected > seconds:
        facts = {"reason": f"a repetition would take about {expected:.0f} s, and {seconds:.0f} s are left"}
    elif not len(sizes) or not sizes.first > 0:
        facts = {"reason": "the size of the first update is not known"}
    else:
        status, facts = _compare(folder, training, HEALTHY_RATIO / sizes.first, begun + seconds)
        facts |= {"first_ratio": sizes.first}
    return {
        "kind": "experiment",
        "track": None,
        "name": "rate",
        "status": status,
        "seconds": round(time.monotonic() - begun, 3),
        "facts": facts,
    }


def _compare(folder: Path, training: Training, factor: float, until: float) -> tuple[str, dict[str, Any]]:
    own = training.series("loss").values[:STEPS]
    treated = _losses(folder, [{"name": "scale_rate", "parameters": {"factor": factor}}], until)
    if isinstance(treated, str):
        return "unknown", {"reason": treated}
    rate = float(training.series("lr").first)
    facts: dict[str, Any] = {
        "factor": factor,
        "rate": rate,
        "other_rate": rate * factor,
        "start": float(own[0]),
        "steps": len(treated),
        "way": "child",
    }
    facts |= {"own_end": _end(own[: len(treated)]), "other_end": _end(treated), "gap": 0.0}
    # The rate cannot act on the first loss: another first loss means that the script draws anew each time.
    if not math.isclose(float(treated[0]), float(own[0]), rel_tol=1e-4):
        control = _losses(folder, [], until)
        if isinstance(control, str):
            return "unknown", {"reason": f"the script is not deterministic, and a control failed: {control}"}
        facts["gap"] = abs(_end(control) - facts["own_end"])
    return "done", facts


def _losses(folder: Path, treatments: list[dict[str, Any]], until: float) -> Any:
    """Return the losses of a repetition, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch:
        stop = {"name": "stop_after", "parameters": {"steps": STEPS}}
        ended = repeat(folder, Path(scratch), [*treatments, stop], max(1.0, until - time.monotonic()))
        run = load_run(ended.folder) if ended.folder is not None else None
        if run is None or not run.trainings:
            return _why(ended)
        return run.trainings[0].series("loss").values[:STEPS]


def _why(ended: Repetition) -> str:
    if ended.refused:
        return f"the repetition was stopped at {ended.refused}: it may not change anything, and namespaces are refused here"
    return "the repetition ran out of time" if ended.timed_out else "the repetition recorded nothing"


def _end(losses: Any) -> float:
    return float(statistics.median(losses[-max(1, len(losses) // 10) :]))
