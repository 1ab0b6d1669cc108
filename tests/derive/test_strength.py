"""Ramps, their combination, and what an experiment makes of a suspicion."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossdoctor.core.run import Experiment, Training
from lossdoctor.derive.rerun import rerun
from lossdoctor.derive.strength import either, ramp, settled, slope

POSITIVE = st.floats(1e-9, 1e9)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_ramp_rises_from_its_first_bound_to_its_second(value: float, nothing: float, everything: float) -> None:
    if math.isclose(nothing, everything):
        return
    strength = ramp(value, nothing, everything)
    nearer = value * (everything / nothing) ** 0.1
    assert 0.0 <= strength <= ramp(nearer, nothing, everything) <= 1.0
    assert ramp(nothing, nothing, everything) == 0.0
    assert ramp(everything, nothing, everything) == pytest.approx(1.0)


@pytest.mark.parametrize(("value", "up", "down"), [(math.inf, 1.0, 0.0), (0.0, 0.0, 1.0), (math.nan, 0.0, 0.0)])
def test_a_ramp_of_what_is_no_number(value: float, up: float, down: float) -> None:
    assert (ramp(value, 0.1, 1.0), ramp(value, 1.0, 0.1)) == (up, down)


def test_a_slope_is_linear() -> None:
    assert [slope(value, 1.0, 3.0) for value in (0.0, 1.0, 1.5, 3.0, 9.0, math.nan)] == [0.0, 0.0, 0.25, 1.0, 1.0, 0.0]


@given(st.lists(st.floats(0, 1), max_size=5))
def test_signs_combine_to_at_least_the_strongest(strengths: list[float]) -> None:
    assert max(strengths, default=0.0) - 1e-12 <= either(*strengths) <= 1.0


def test_an_experiment_settles_a_suspicion_and_leaves_the_rest() -> None:
    assert settled(0.5, 1.0) >= 0.8
    assert settled(0.7, 0.0) < 0.3
    assert settled(0.95, 0.0) == 0.95
    assert settled(0.1, 1.0) == 0.1


def tried(**facts: object) -> Training:
    return Training(experiments={"rate": Experiment("rate", "done", 1.0, {"factor": 0.01, "steps": 150, "start": 2.0, **facts})})


@pytest.mark.parametrize(
    ("facts", "gain"),
    [
        ({"own_end": 2.2, "other_end": 0.2}, 1.0),
        ({"own_end": math.nan, "other_end": 0.2}, 1.0),
        ({"own_end": 0.3, "other_end": 0.5}, -0.1),
    ],
)
def test_gain_of_a_rerun_is_a_share_of_the_reference(facts: dict[str, float], gain: float) -> None:
    found = rerun(tried(**facts), None)
    assert found is not None
    assert found.gain == pytest.approx(gain)


def test_a_rerun_that_ends_in_no_number_says_nothing() -> None:
    assert rerun(tried(own_end=1.0, other_end=math.nan), 2.0) is None
    assert rerun(Training(experiments={"rate": Experiment("rate", "unknown", 1.0, {})}), 2.0) is None
