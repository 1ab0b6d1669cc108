"""The suite `sets`: which sets are those of two planted faults."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lossdoctor.bench.conditions import PAIRS, suite
from lossdoctor.bench.sets import Reduced, exact, table

PAIR = (("zero-grad-missing",), ("too-few-examples", "overfitting"))


@pytest.mark.parametrize(
    ("needed", "untreated", "right"),
    [
        (("zero-grad-missing", "too-few-examples"), (), True),
        (("overfitting", "zero-grad-missing"), (), True),
        (("zero-grad-missing",), (), False),
        (("zero-grad-missing",), ("too-few-examples", "overfitting"), True),
        (("zero-grad-missing", "too-few-examples", "overfitting"), (), False),
        (("zero-grad-missing", "too-few-examples", "lr-too-high"), (), False),
        ((), (), False),
    ],
)
def test_a_set_is_exact_where_it_holds_one_fault_of_each_cause(needed: Sequence[str], untreated: Sequence[str], right: bool) -> None:
    assert exact(PAIR, needed, dict.fromkeys(untreated, "no rows")) is right


def test_a_cause_without_a_treatment_need_not_be_in_it() -> None:
    assert exact((("lr-too-low",), ("labels-meaningless",)), ["lr-too-low"], {})


def test_the_suite_holds_the_pairs() -> None:
    assert [each.name for each in suite("sets")] == [f"{one} + {other}" for one, other in PAIRS]


def test_the_table_tells_what_other_sets_there_were() -> None:
    tried = [Reduced("digits", "a + b", 0, (), ("a", "b"), True, 60.0), Reduced("images", "a + b", 0, (), ("a",), False, 60.0)]
    cells = [list(column.cells) for column in table(tried).columns]
    assert str(cells[1][0]).startswith("1/2")
    assert cells[2] == ["images: a"]
