"""Plateaus, jumps and rises against plain loops and against curves with a known shape."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossdoctor.core.run import Series
from lossdoctor.derive.jumps import DEVIATIONS, jumps
from lossdoctor.derive.noise import TO_SIGMA
from lossdoctor.derive.plateau import plateaus
from lossdoctor.derive.rise import rise


@given(st.lists(st.floats(0, 4), min_size=1, max_size=25), st.floats(0.1, 2))
def test_plateaus_are_the_longest_flat_stretches_from_the_left(values: list[float], tolerance: float) -> None:
    found = plateaus(Series.of(values), tolerance, share=0.2)
    assert [(each.start, each.stop) for each in found] == plain_plateaus(values, tolerance, 0.2)
    for each in found:
        stretch = values[each.start : each.stop + 1]
        assert max(stretch) - min(stretch) <= tolerance
        assert each.level == pytest.approx(statistics.fmean(stretch))


def plain_plateaus(values: list[float], tolerance: float, share: float) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(values):
        end = at + 1
        while end < len(values) and max(values[at : end + 1]) - min(values[at : end + 1]) <= tolerance:
            end += 1
        if end - at >= 2 and (end - at) / len(values) >= share:
            found.append((at, end - 1))
            at = end
        else:
            at += 1
    return found


@given(st.lists(st.floats(0, 10) | st.sampled_from([1e3, math.nan, math.inf]), max_size=40))
def test_jumps_begin_where_a_value_leaves_those_before_it(values: list[float]) -> None:
    assert [jump.step for jump in jumps(Series.of(values), window=8)] == plain_jumps(values, 8)


def plain_jumps(values: list[float], window: int) -> list[int]:
    capped = [min(value, 1e300) if math.isfinite(value) else 1e300 for value in values]
    high = []
    for at in range(2, len(capped)):
        earlier = capped[max(0, at - window) : at]
        middle = statistics.median(earlier)
        deviation = TO_SIGMA * statistics.median([abs(value - middle) for value in earlier])
        if capped[at] > middle + max(DEVIATIONS * deviation, 0.5 * abs(middle)):
            high.append(at)
    return [at for i, at in enumerate(high) if i == 0 or at - high[i - 1] > 2]


def test_jumps_tell_a_spike_that_passes_from_one_that_stays() -> None:
    noise = 0.01 * np.random.default_rng(0).normal(size=200)
    passing = 1 + noise
    passing[100] = 30
    staying = 1 + noise
    staying[100:] += 20
    assert [(jump.step, jump.recovered) for jump in jumps(Series.of(passing))] == [(100, True)]
    assert [(jump.step, jump.recovered) for jump in jumps(Series.of(staying))] == [(100, False)]
    assert jumps(Series.of(1 + noise)) == []


def test_a_jump_to_nan_is_infinitely_high() -> None:
    (jump,) = jumps(Series.of([1.0, 1.1, 0.9, math.nan, math.nan]))
    assert jump.step == 3
    assert jump.peak == math.inf
    assert not jump.recovered


def test_rise_finds_minimum_and_onset_of_a_noisy_valley() -> None:
    steps = np.arange(0, 3000, 50)
    for seed in range(10):
        curve = 0.5 + 0.8e-6 * (steps - 1000.0) ** 2 + 0.02 * np.random.default_rng(seed).normal(size=len(steps))
        found = rise(Series.of(curve, steps))
        assert found is not None
        assert 800 <= found.best_step <= 1200
        assert found.onset is not None
        assert 1000 <= found.onset <= 1700
        assert found.sigmas > 20


def test_rise_of_a_curve_that_settles_is_within_its_noise() -> None:
    for seed in range(20):
        curve = 0.3 + np.exp(-np.arange(60) / 6.0) + 0.03 * np.random.default_rng(seed).normal(size=60)
        found = rise(Series.of(curve))
        assert found is not None
        assert found.sigmas < 4


def test_rise_needs_four_values() -> None:
    assert rise(Series.of([1.0, 0.5, 2.0])) is None
    assert rise(Series.of([1.0, math.nan, 0.5, 2.0])) is None
