"""Noise and trend against noise that was put in, and against plain loops."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from lossdoctor.core.run import Series
from lossdoctor.derive.noise import noise_floor, spread
from lossdoctor.derive.trend import trend


def noisy(seed: int, n: int, sigma: float, slope: float = 0.0) -> Series:
    draw = np.random.default_rng(seed)
    return Series.of(5.0 + slope * np.arange(n) + sigma * draw.normal(size=n))


@pytest.mark.parametrize("slope", [0.0, -0.02, 1.0])
def test_noise_floor_finds_the_noise_on_any_straight_line(slope: float) -> None:
    assert noise_floor(noisy(1, 4000, 0.3, slope)) == pytest.approx(0.3, rel=0.05)


def test_noise_floor_is_deaf_to_jumps_and_gaps() -> None:
    series = noisy(2, 4000, 0.3)
    series.values[::500] += 100
    series.values[7::500] = np.nan
    assert noise_floor(series) == pytest.approx(0.3, rel=0.08)


def test_too_few_values_have_no_noise() -> None:
    assert noise_floor(Series.of([1, 5, 2])) == 0.0
    assert spread(Series.of([])) == 0.0


def test_spread_is_the_standard_deviation_of_normal_values() -> None:
    assert spread(noisy(3, 4000, 0.3)) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_trend_is_the_median_of_all_pairwise_slopes(seed: int) -> None:
    series = noisy(seed, 25, 1.0, -0.1)
    slopes = [(series.values[j] - series.values[i]) / (series.steps[j] - series.steps[i]) for i in range(25) for j in range(i + 1, 25)]
    found = trend(series)
    assert found.slope == pytest.approx(statistics.median(slopes))
    assert found.low < found.slope < found.high


def test_trend_interval_holds_the_true_slope_about_as_often_as_it_says() -> None:
    held = [found.low <= -0.01 <= found.high for found in (trend(noisy(seed, 60, 1.0, -0.01)) for seed in range(200))]
    assert 0.9 <= np.mean(held) <= 0.99


def test_trend_of_a_flat_curve_neither_falls_nor_rises_and_outliers_do_not_bend_it() -> None:
    flat = trend(noisy(4, 500, 0.5))
    assert not flat.falls
    assert not flat.rises
    falling = noisy(5, 500, 0.1, -0.01)
    falling.values[3] = 1e6
    assert trend(falling).slope == pytest.approx(-0.01, rel=0.1)


def test_trend_of_two_points_is_unknown() -> None:
    assert not trend(Series.of([2.0, 1.0])).falls
