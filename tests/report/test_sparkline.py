"""Curves in one line of text and as SVG."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
from diagnoses import patient
from hypothesis import given
from hypothesis import strategies as st

from lossdoctor.report.sparkline import ASCII, BLOCKS, sparkline, stretches, svg

curves = st.lists(st.floats(width=64), max_size=100)


@patient
@given(curves, st.integers(1, 60))
def test_it_is_at_most_as_wide_as_asked_and_made_of_its_marks(values: list[float], width: int) -> None:
    for marks, ascii_only in ((BLOCKS, False), (ASCII, True)):
        line = sparkline(values, width, ascii_only=ascii_only)
        assert len(line) == min(width, len(values))
        assert set(line) <= set(marks + "x")


def test_low_is_low_and_high_is_high() -> None:
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == BLOCKS[::-1]
    assert sparkline([5, 5, 5]) == BLOCKS[0] * 3
    assert sparkline([]) == ""


def test_a_stretch_with_a_value_that_is_not_finite_is_marked() -> None:
    assert sparkline([1, 1, 2, math.nan, math.inf, 2], 3) == BLOCKS[0] + "x" + "x"


def test_a_loss_that_runs_away_still_shows_its_climb() -> None:
    line = sparkline([10.0**power for power in range(12)])
    assert len(set(line)) == len(BLOCKS)


def test_a_loss_that_ran_away_and_came_back_shows_both() -> None:
    line = sparkline([2.3, 2e5] + [9e4, 2e4, 4e3, 800.0, 160.0, 50.0] + [50.0] * 40, 10)
    assert line[0] == BLOCKS[7]
    assert line[-1] == BLOCKS[0]
    assert len(set(line)) >= 3


def test_a_loss_that_converges_is_drawn_as_it_falls() -> None:
    assert sparkline([2.0, 1.1, 0.01, 1e-9, 1e-12]) == BLOCKS[7] + BLOCKS[4] + BLOCKS[0] * 3


@patient
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 20))
def test_stretches_are_means(values: list[float], width: int) -> None:
    got = stretches(np.array(values), width)
    bounds = np.array_split(range(len(values)), min(width, len(values)))
    slow = [sum(values[i] for i in part) / len(part) for part in bounds]
    assert np.allclose(got, slow)


@patient
@given(curves)
def test_svg_is_well_formed_and_stays_within_its_box(values: list[float]) -> None:
    text = svg(values, 320, 48)
    if sum(math.isfinite(value) for value in values) < 2:
        assert text == ""
        return
    lines = ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.attrib["points"].split()]
    assert len(points) == sum(math.isfinite(value) for value in values)
    assert all(0 <= x <= 320 and 0 <= y <= 48 for x, y in points)


def test_svg_breaks_the_line_where_a_value_is_missing() -> None:
    assert svg([1, 2, math.nan, 3, 4]).count("<polyline") == 2
