"""The suite `confirm`: what is planted, what is tried on it, how it is counted."""

from __future__ import annotations

import ast

import pytest

from lossdoctor.bench import trials
from lossdoctor.bench.cures import chosen, cures
from lossdoctor.bench.edit import recipes
from lossdoctor.bench.matrix import rows
from lossdoctor.bench.trials import PLACEBO, Tried, table
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.errors import UsageError
from lossdoctor.core.fault import faults
from lossdoctor.core.run import Run, Series, Training
from lossdoctor.trials.confirm import Confirmer


def test_the_suite_holds_every_fault_with_plants_and_a_treatment_and_the_cures_without_a_fault() -> None:
    named = {each.name for each in chosen([])}
    with_both = {slug for slug, fault in faults().items() if fault.plants and fault.treatment and fault.treatment.safety != "advice-only"}
    assert named == {HEALTHY, *with_both, *cures()}
    assert {"causal-leak", "batch-time-swapped", "penalty-dominates", "accumulation-unscaled", "not-shuffled"} <= named


def test_every_row_of_the_suite_is_a_script_and_every_cure_has_one() -> None:
    laid = rows(list(recipes().values()), chosen([]), ("mild", "middle", "severe"), [0])
    for row in laid:
        ast.parse(row.source)
    assert set(cures()) <= {row.planted for row in laid}


def test_an_unknown_name_is_answered() -> None:
    with pytest.raises(UsageError, match="did you mean 'causal-leak'"):
        chosen(["causal-leek"])


def test_a_cure_is_tried_without_a_rule_that_names_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = Run(trainings=[Training(signals={"loss": Series.of([1.0] * 50)})])
    planted = rows([recipes()["sequences"]], chosen(["set_option"]), ("middle",), [0])[0]
    ((name, candidate),) = trials._candidates(planted, run, Confirmer(tmp_path, run))
    assert name == "set_option"
    assert candidate is not None
    assert (candidate.value["name"], candidate.signal) == ("set_option", "loss")
    healthy = rows([recipes()["digits"]], chosen([HEALTHY]), ("middle",), [0])[0]
    offered = {name for name, _ in trials._candidates(healthy, run, Confirmer(tmp_path, run))}
    assert {"not-shuffled", "set_option", PLACEBO, "causal-leak"} <= offered


def test_the_table_counts_what_was_confirmed() -> None:
    tried = [
        Tried("digits", "shuffle", seed, "shuffle", verdict, 0.5, 10.0, 5.0)
        for seed, verdict in enumerate(["confirmed", "confirmed", "unclear"])
    ]
    made = table(tried)
    cells = [list(column.cells) for column in made.columns]
    assert cells[0] == ["shuffle"]
    assert str(cells[2][0]).startswith("2/3")
    assert cells[3] == ["unclear 1"]
