"""Block means and rolling medians agree with plain loops."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossdoctor.core.run import Series
from lossdoctor.derive.smooth import blocks, over_windows, rolling_median, tail, value_at

VALUES = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), max_size=40)


@given(VALUES, st.integers(1, 15))
def test_blocks_are_the_means_of_equal_stretches(values: list[float], count: int) -> None:
    found = blocks(Series.of(values), count)
    kept = [(step, value) for step, value in enumerate(values) if math.isfinite(value)]
    stretches = min(count, len(kept))
    edges = [int(len(kept) * i / stretches) for i in range(stretches + 1)] if kept else [0]
    wanted = [kept[a:b] for a, b in pairwise(edges)]
    assert found.steps.tolist() == [stretch[-1][0] for stretch in wanted]
    assert found.values == pytest.approx([statistics.fmean(value for _, value in stretch) for stretch in wanted], abs=1e-6)


@given(VALUES, st.integers(1, 9))
def test_rolling_median_is_the_median_of_the_values_around(values: list[float], window: int) -> None:
    found = rolling_median(Series.of(values), window)
    kept = [value for value in values if math.isfinite(value)]
    half = min(window // 2, max(0, (len(kept) - 1) // 2))
    wanted = [statistics.median(kept[max(0, i - half) : i + half + 1]) for i in range(len(kept))]
    assert found.values.tolist() == pytest.approx(wanted)


def test_a_lone_spike_does_not_move_the_median() -> None:
    values = [1.0] * 50 + [1e9] + [1.0] * 50
    assert rolling_median(Series.of(values), 5).values.max() == 1.0


def test_windows_are_cut_into_chunks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossdoctor.derive.smooth.CHUNK", 7)
    values = np.arange(50.0)
    assert over_windows(values, 3, lambda rows: rows.max(axis=1)).tolist() == values[2:].tolist()


def test_tail_keeps_at_least_so_many() -> None:
    assert len(tail(Series.of(range(100)), 0.1)) == 10
    assert tail(Series.of([1, 2, 3, 4, 5]), 0.1).values.tolist() == [3, 4, 5]
    assert len(tail(Series.of([1]), 0.1)) == 1


@pytest.mark.parametrize(("step", "value"), [(-5, 3.0), (0, 3.0), (9, 3.0), (10, 2.0), (99, 1.0)])
def test_value_at_is_the_last_one_before(step: int, value: float) -> None:
    assert value_at(Series.of([3.0, 2.0, 1.0], [0, 10, 20]), step) == value
