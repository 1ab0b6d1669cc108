"""Where the time of a run goes: the parts of its steps, and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lossdoctor.core.run import Series
from lossdoctor.derive.wait import LEAST_STEPS, Wait

# In the order in which a step goes through them. `loss` is what lies between forward and backward (and between backward and
# step: clipping, logging there), `script` what lies between two steps and is no waiting.
PARTS = ("waiting", "forward", "loss", "backward", "optimiser", "script", "validation")
_SIGNALS = {"forward": "forward_seconds", "backward": "backward_seconds", "optimiser": "step_seconds"}


def time_parts(signals: Mapping[str, Series], wait: Wait | None, passes: Sequence[tuple[float, float]] = ()) -> dict[str, float] | None:
    """Divide the time from the first step's end to the last one's into shares that add up to 1.

    Means over the steps that were kept stand for all, since long records are thinned. Time inside a step that no clock
    covers is `loss`; time between two steps that was not spent waiting is `script`.

    Args:
        signals: `wall` and the seconds of each part, by name; a part that was not measured counts as 0.
        wait: what was waited for data, or None where that was not measured.
        passes: (begin, end) of the validation passes, on the clock of `wall`.

    Returns:
        Share by part, None for fewer than ten steps.

    Example:
        >>> wall = Series.of([0.1 * i for i in range(11)])
        >>> parts = time_parts({"wall": wall, "forward_seconds": Series.of([0.04] * 11)}, None)
        >>> round(parts["forward"], 6), round(parts["loss"], 6)
        (0.4, 0.6)
    """
    wall = signals.get("wall", Series.of([])).finite()
    if len(wall) <= LEAST_STEPS or wall.last <= wall.first:
        return None
    steps = float(wall.steps[-1] - wall.steps[0])
    step = (wall.last - wall.first) / steps
    seconds = {name: _mean(signals.get(signal)) for name, signal in _SIGNALS.items()}
    seconds["validation"] = sum(_overlap(each, wall) for each in passes) / steps
    gap = max(_mean(signals.get("gap_seconds")), wait.wait_seconds if wait else 0.0)
    seconds["waiting"] = min(wait.wait_seconds, gap) if wait else 0.0
    seconds["script"] = gap - seconds["waiting"]
    seconds["loss"] = max(0.0, step - sum(seconds.values()))
    whole = sum(seconds.values())  # above the step where clocks overlap, as where a hook validates inside a gap
    return {name: seconds[name] / whole for name in PARTS}


def _mean(series: Series | None) -> float:
    """Return the mean of a part over the steps after the first, which holds imports and caches."""
    known = series.values[1:] if series is not None else np.array([])
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else 0.0


def _overlap(span: tuple[float, float], wall: Series) -> float:
    return max(0.0, min(span[1], wall.last) - max(span[0], wall.first))


def queued_share(signals: Mapping[str, Series]) -> float | None:
    """Return the share of the thread's working time in which it waited for a core; None where that was not measured.

    Args:
        signals: with `cpu_seconds` and `queued_seconds`, each counted from the thread's beginning.

    Example:
        >>> named = {"cpu_seconds": Series.of([1.0, 4.0]), "queued_seconds": Series.of([0.1, 1.1])}
        >>> queued_share(named)
        0.25
    """
    cpu, queued = (signals.get(name, Series.of([])).finite() for name in ("cpu_seconds", "queued_seconds"))
    if len(cpu) < 2 or len(queued) < 2:
        return None
    computed, waited = cpu.last - cpu.first, queued.last - queued.first
    return waited / (computed + waited) if waited >= 0 and computed > 0 else None
