"""Rows are laid out and run as real commands."""

from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.bench import matrix
from lossdoctor.bench.conditions import Condition, condition, pair, suite
from lossdoctor.bench.demo import demo_rows
from lossdoctor.bench.edit import recipes
from lossdoctor.bench.matrix import Outcome, Row, rows, run_row, run_rows
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.errors import UsageError
from lossdoctor.core.fault import Plant

DIGITS = recipes()["digits"]


def test_rows_are_conditions_times_levels_times_seeds_and_healthy_has_no_level() -> None:
    plant = Plant("middle", "loop", r"optimizer\.zero_grad\(\)", "pass")
    laid = rows([DIGITS], [condition(HEALTHY), Condition("sick", (plant,), ("sick",))], ("mild", "middle"), range(3))
    assert [(row.planted, row.level, row.seed) for row in laid] == [
        *((HEALTHY, "", seed) for seed in range(3)),
        *(("sick", "middle", seed) for seed in range(3)),
    ]
    assert laid[4].source == laid[3].source.replace("SEED = 0", "SEED = 1")
    assert "optimizer.zero_grad()" not in laid[3].source


def test_a_plant_is_left_out_where_it_is_not_meant_to_go() -> None:
    spirals = recipes()["spirals"]
    assert rows([spirals], [condition("dead-units")], ("middle",), [0]) == []
    assert len(rows([DIGITS], [condition("dead-units")], ("middle",), [0])) == 1


def test_ten_conditions_are_ten_and_every_suite_begins_healthy() -> None:
    assert len({each.name for each in suite("ten")}) == 10
    assert {suite(name)[0].name for name in ("ten", "watching", "all")} == {HEALTHY}
    with pytest.raises(UsageError, match="no suite is called 'nine'"):
        suite("nine")


def test_an_unknown_condition_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'zero-grad-missing'"):
        condition("zero-grad-mising")


def test_demo_breaks_one_network_in_different_ways() -> None:
    laid = demo_rows()
    assert laid[0].planted == HEALTHY
    assert len({row.source for row in laid}) == len(laid) <= 10


class Immediate(Executor):
    """Run what is submitted at once, in order."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_any_executor_can_run_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "run_row", lambda row: Outcome(row, HEALTHY))
    laid = rows([DIGITS], [condition(HEALTHY)], (), range(4))
    assert {outcome.row.seed for outcome in run_rows(laid, 1, Immediate())} == {0, 1, 2, 3}


def test_a_script_that_cannot_run_is_a_failed_row() -> None:
    outcome = run_row(Row("digits", HEALTHY, (HEALTHY,), "", 0, "this is not python"))
    assert not outcome.named
    assert outcome.why


@pytest.mark.slow
def test_a_planted_row_is_named_and_a_healthy_one_left_alone() -> None:
    laid = rows([DIGITS.with_constant("EPOCHS", 8)], [condition(HEALTHY), condition("zero-grad-missing")], ("middle",), [11])
    healthy, sick = (run_row(row) for row in laid)
    assert healthy.verdict == HEALTHY
    assert sick.verdict == "zero-grad-missing"
    assert sick.strengths["zero-grad-missing"] > 0.9 > healthy.strengths["zero-grad-missing"]
    assert not list(Path("/tmp").glob("lossdoctor-bench-*/train.py"))


# Least validation figure of a healthy run: accuracy, or the explained share; the recipes' docstrings hold what was seen.
LEAST = {"digits": 0.93, "regression": 0.9, "images": 0.95, "sequences": 0.9, "language": 0.35, "spirals": 0.97}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(recipes()))
def test_recipes_learn(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(recipes()[name].with_constant("SEED", 7).source)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) > LEAST[name]
    assert ast.get_docstring(ast.parse(recipes()[name].source))


def test_a_pair_plants_both_and_is_named_where_both_are_among_the_findings() -> None:
    laid = rows([DIGITS], [pair("zero-grad-missing", "input-bottleneck")], ("middle",), [0])
    assert "optimizer.zero_grad()" not in laid[0].source
    assert "sleep" in laid[0].source
    both = (("zero-grad-missing", "error", 1.0), ("input-bottleneck", "warning", 0.9))
    assert Outcome(laid[0], "zero-grad-missing", both).named
    assert not Outcome(laid[0], "zero-grad-missing", both[:1]).named
