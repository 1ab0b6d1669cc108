"""Pictures of a check: what is drawn of which facts, and nothing of facts that cannot be drawn."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from diagnoses import HOSTILE

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import html
from lossdoctor.report.pictures import HEIGHT, MOST_BARS, WIDTH, bars, pictures

RATES = [1e-4, 1e-3, 1e-2, 1e-1]
RANGE = {"rates": RATES, "losses": [2.0, 1.9, 0.5, 3.0], "low": 1e-3, "high": 1e-2, "own": 1e-1}


def checked(name: str, facts: Any, status: str = "done") -> Diagnosis:
    return Diagnosis(experiments=[{"name": name, "status": status, "seconds": 0.1, "facts": facts}])


def heights(drawing: str) -> list[float]:
    return [float(each) for each in re.findall(r'<rect [^>]*? height="([0-9.]+)"', drawing)]


def test_bars_are_as_high_as_their_counts() -> None:
    assert heights(bars([1, 4, 2])) == [HEIGHT / 4, HEIGHT, HEIGHT / 2]
    assert heights(bars([0, 0])) == [0.0, 0.0]


def test_a_rate_range_marks_the_own_rate_and_the_interval() -> None:
    (picture,) = pictures(checked("rate_range", RANGE))
    marks = re.findall(r'points="([0-9.]+),0 [0-9.]+,', picture.drawing)
    assert [float(each) for each in marks] == pytest.approx([1 + (WIDTH - 2) / 3, 1 + 2 * (WIDTH - 2) / 3, WIDTH - 1], abs=0.1)
    assert picture.below.startswith("rate 0.0001 to 0.1")


def test_no_mark_is_drawn_for_a_rate_that_was_not_tried() -> None:
    (picture,) = pictures(checked("rate_range", RANGE | {"own": 5.0, "low": None, "high": None}))
    assert picture.drawing.count("<polyline") == 1


def test_each_rate_of_memorising_has_its_curve() -> None:
    drawn = pictures(checked("memorise", {"courses": {"0.01": [1.0, 0.5, math.nan], "0.001": [1.0, 0.01]}}))
    assert [each.title for each in drawn] == ["memorising at rate 0.01", "memorising at rate 0.001"]
    assert drawn[1].below == "1 to 0.01 of guessing, in powers of ten"


def test_inputs_targets_and_classes_are_drawn_beside_each_other() -> None:
    column = {"min": -1.0, "max": 3.0, "histogram": [1, 2, 3]}
    assert [each.below for each in pictures(checked("look", {"inputs": [column], "targets": column}))] == ["-1 to 3", "-1 to 3"]
    many = {str(number): 5 for number in range(MOST_BARS + 9)}
    (picture,) = pictures(checked("look", {"inputs": [], "classes": many}))
    assert len(heights(picture.drawing)) == MOST_BARS
    assert "the first 60 drawn" in picture.below


@pytest.mark.parametrize("name", ["look", "memorise", "rate_range"])
@pytest.mark.parametrize(
    "facts",
    [
        None,
        {},
        {"reason": "no time"},
        {"inputs": [{"histogram": ["x"], "min": 0, "max": 1}], "rates": [0.0, 1.0], "losses": [1, 2], "courses": {"1": None}},
        {"inputs": [{"histogram": [math.nan], "min": 0, "max": 1}], "rates": ["a", "b"], "losses": [1, 2], "courses": {"1": ["x", "y"]}},
        {"inputs": None, "rates": [1.0], "losses": [1.0], "courses": [1]},
        {"inputs": [{}], "classes": {"a": "many"}, "rates": [1.0, 1.0], "losses": [1.0, 2.0], "own": 1.0, "courses": {}},
    ],
)
def test_facts_that_cannot_be_drawn_are_left_out(name: str, facts: Any) -> None:
    assert pictures(checked(name, facts)) == []


def test_what_was_not_done_is_not_drawn() -> None:
    assert pictures(checked("rate_range", RANGE, "unknown")) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_of_classes_and_rates_stay_text(text: str) -> None:
    diagnosis = checked("look", {"inputs": [], "classes": {text: 3, "b": 4}})
    diagnosis.experiments += checked("memorise", {"courses": {text: [1.0, 0.1]}}).experiments
    page = html.page(diagnosis)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    page.encode("utf-8")


def test_the_page_holds_the_pictures_and_no_long_lists() -> None:
    page = html.page(checked("rate_range", RANGE))
    assert "loss over the rate" in page
    assert "[2.0, 1.9, 0.5, 3.0]" not in page
