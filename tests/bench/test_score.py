"""Shares, intervals, misses, false alarms and what calibration learns from."""

from __future__ import annotations

import json
import math

import pytest

from lossdoctor.bench.calibrate import calibrate, held_out, pairs
from lossdoctor.bench.matrix import Outcome, Row
from lossdoctor.bench.score import Share, alarms, as_json, confusion, misses, share
from lossdoctor.bench.tables import summary
from lossdoctor.core.diagnosis import HEALTHY


def outcome(
    planted: str, verdict: str, *, recipe: str = "digits", seed: int = 0, accepted: tuple[str, ...] = (), **fields: object
) -> Outcome:
    row = Row(recipe, planted, accepted or (planted,), "" if planted == HEALTHY else "middle", seed, "print()")
    return Outcome(row, verdict, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("named", "rows"), [(0, 5), (5, 5), (9, 10), (48, 50), (1, 3)])
def test_interval_is_wilsons(named: int, rows: int) -> None:
    z, p = 1.959963984540054, named / rows
    middle = (p + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * math.sqrt(p * (1 - p) / rows + z * z / (4 * rows * rows)) / (1 + z * z / rows)
    found = Share.of(named, rows)
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half), abs=1e-9)


def test_no_rows_say_nothing() -> None:
    assert (share([]).low, share([]).high) == (0.0, 1.0)


def test_symptom_names_the_condition_where_it_is_accepted() -> None:
    both = ("too-few-examples", "overfitting")
    assert outcome("too-few-examples", "overfitting", accepted=both).named
    assert not outcome("overfitting", "too-few-examples").named


def test_misses_and_alarms_are_told_apart() -> None:
    sick = outcome("lr-too-high", HEALTHY)
    quiet = outcome(HEALTHY, HEALTHY, said=(("too-few-epochs", "advice", 0.9),))
    loud = outcome(HEALTHY, "overfitting", said=(("overfitting", "warning", 0.9),))
    lost = outcome(HEALTHY, "failed")
    rows = [sick, outcome("lr-too-high", "lr-too-high"), quiet, loud, lost]
    assert misses(rows) == [sick]
    assert alarms(rows) == [loud, lost]
    assert confusion(rows)["lr-too-high"] == {HEALTHY: 1, "lr-too-high": 1}


def test_json_holds_rows_and_figures_without_sources() -> None:
    stored = json.loads(json.dumps(as_json([outcome("lr-too-high", "lr-too-high"), outcome(HEALTHY, HEALTHY)])))
    assert stored["schema"] == "lossdoctor/bench/1"
    assert (stored["named"]["named"], stored["named"]["rows"]) == (1, 1)
    assert stored["false_alarms"] == {"rows": 1, "alarms": 0}
    assert [row["named"] for row in stored["rows"]] == [True, True]
    assert "source" not in stored["rows"][0]


def test_terminal_shows_misses_with_what_was_said() -> None:
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary([outcome("lr-too-high", HEALTHY, suspected=(("lr-too-high", 0.6),)), outcome(HEALTHY, HEALTHY)]))
    text = console.export_text()
    assert "miss: lr-too-high middle on digits, seed 0: healthy (nothing present; suspected lr-too-high 0.60)" in text
    assert "0 false alarms on 1 healthy rows" in text


def test_calibration_leaves_out_what_the_planted_fault_explains() -> None:
    strengths = {"zero-grad-missing": 1.0, "lr-too-high": 0.9, "input-bottleneck": 0.0}
    seen = set(pairs([outcome("zero-grad-missing", "zero-grad-missing", strengths=strengths)]))
    assert seen == {("zero-grad-missing", 1.0, True), ("input-bottleneck", 0.0, False)}


def test_calibration_rises_with_strength_and_is_judged_on_a_recipe_left_out() -> None:
    rows = [
        outcome(planted, planted, recipe=recipe, seed=seed, strengths={"x": (0.9 if planted == "x" else 0.1) + seed / 100})
        for recipe in ("digits", "regression")
        for planted in ("x", HEALTHY)
        for seed in range(6)
    ]
    table = calibrate(rows)["x"]
    assert [pair[1] for pair in table] == sorted(pair[1] for pair in table)
    assert table[0][1] < 0.2 < 0.8 < table[-1][1]
    first, second = held_out(rows)
    assert (first.recipe, second.recipe) == ("digits", "regression")
    assert first.brier < 0.05
    assert (first.present, first.right, first.planted) == (6, 6, 6)
    assert held_out(rows[:12]) == []
