"""Where the time of a run goes, against loops whose parts are known, and how busy the machine was with other work."""

from __future__ import annotations

import numpy as np
import pytest

from lossdoctor.core.run import Series
from lossdoctor.derive.parts import PARTS, queued_share, time_parts
from lossdoctor.derive.wait import wait_share

# Seconds of each part of a step; a wall of 200 steps is made of them, with a validation pass after every fiftieth.
STEP = {"waiting": 0.02, "forward": 0.03, "loss": 0.01, "backward": 0.05, "optimiser": 0.015, "script": 0.005}
PASS = 0.5


def timeline(steps: int = 200) -> tuple[dict[str, Series], list[tuple[float, float]]]:
    clock, wall, passes = 0.0, [], []
    for number in range(steps):
        if number and number % 50 == 0:
            passes.append((clock, clock + PASS))
            clock += PASS
        clock += sum(STEP.values())
        wall.append(clock)
    constant = {
        "forward_seconds": STEP["forward"],
        "backward_seconds": STEP["backward"],
        "step_seconds": STEP["optimiser"],
        "loader_seconds": STEP["waiting"],
        "gap_seconds": STEP["waiting"] + STEP["script"],
    }
    return {"wall": Series.of(wall), **{name: Series.of([value] * steps) for name, value in constant.items()}}, passes


def parts_of(signals: dict[str, Series], passes: list[tuple[float, float]]) -> dict[str, float]:
    wait = wait_share(signals["wall"], signals["loader_seconds"], None, signals["gap_seconds"], passes)
    found = time_parts(signals, wait, passes)
    assert found is not None
    return found


def test_known_parts_come_out() -> None:
    signals, passes = timeline()
    found = parts_of(signals, passes)
    whole = signals["wall"].last - signals["wall"].first
    expected = {name: 199 * seconds / whole for name, seconds in STEP.items()} | {"validation": len(passes) * PASS / whole}
    assert list(found) == list(PARTS)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_record_at_half_density_gives_the_same_parts() -> None:
    signals, passes = timeline()
    thinned = {name: Series(series.steps[::2], series.values[::2]) for name, series in signals.items()}
    assert parts_of(thinned, passes) == pytest.approx(parts_of(signals, passes), abs=0.01)


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 30, [np.nan] * 30])
def test_without_steps_that_take_time_nothing_is_told(values: list[float]) -> None:
    assert time_parts({"wall": Series.of(values)}, None) is None


def test_queueing_is_that_between_the_first_and_the_last_look() -> None:
    signals = {"cpu_seconds": Series.of([5.0, 8.0]), "queued_seconds": Series.of([9.0, 10.0])}
    assert queued_share(signals) == pytest.approx(0.25)
    assert queued_share({"cpu_seconds": signals["cpu_seconds"]}) is None
