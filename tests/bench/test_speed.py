"""The suite `speed`: inefficiencies are planted and mended, and what mending gains is held against what was said."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lossdoctor.bench import speed
from lossdoctor.bench.edit import find_recipe
from lossdoctor.bench.inefficiencies import LEVELS, inefficiencies
from lossdoctor.bench.speed import Gained, gained, row_seconds
from lossdoctor.cli import group
from lossdoctor.core.fault import Level
from lossdoctor.core.run import Run, Series, Training

PLANTED = list(inefficiencies().values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.condition.name)
def test_each_plant_and_its_mended_twin_are_scripts_that_differ(planted: Any, level: Level) -> None:
    recipe = find_recipe(planted.recipe)
    plant = next(plant for plant in planted.condition.plants if plant.level == level and recipe.takes(plant))
    sick, mended = recipe.planted(plant).source, planted.mended(recipe, level).source
    ast.parse(sick)
    ast.parse(mended)
    assert sick != mended
    assert "lossdoctor" not in sick


def test_a_prediction_is_near_within_a_fifth_or_three_hundredths_of_the_step() -> None:
    row = lambda predicted, measured: Gained("leak", "mild", "digits", 0, (), predicted=predicted, measured=measured)  # noqa: E731
    assert row(0.9, 0.8).near
    assert row(0.02, 0.0).near
    assert not row(0.5, 0.8).near
    assert not row(0.0, math.nan).near


def made(step: float, queued: float = 0.0) -> Run:
    steps = list(range(101))
    signals = {"wall": Series.of([(step + queued) * i for i in steps]), "batch_rows": Series.of([10.0] * 101)}
    return Run(facts={"queued": [queued * i for i in steps]}, trainings=[Training(signals=signals)])


def test_time_in_which_other_work_held_the_core_is_no_cost() -> None:
    assert row_seconds(made(0.2, 0.1)) == pytest.approx(0.02)
    assert math.isnan(row_seconds(Run()))


def test_a_row_takes_the_first_cause_that_costs_time_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"status": "present", "gain": {}}
    findings = [
        {**present, "family": "OPT", "slug": "too-few-epochs"},
        {**present, "family": "PRF", "slug": "padding-waste", "gain": {"time": 0.5}},
        {**present, "family": "PRF", "slug": "launch-bound"},
    ]
    monkeypatch.setattr(speed, "_run", lambda source, options: ({"findings": findings}, Run(), ""))
    monkeypatch.setattr(speed, "timed", lambda source: made(0.2 if "pad(" in source else 0.1))
    found = gained(inefficiencies()["padding"], "mild", 0, ())
    assert (found.said, found.named, found.predicted, found.near) == ("padding-waste", True, 0.5, True)


def test_the_command_prints_and_writes_the_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = Gained("leak", "middle", "digits", 0, ("graph-retained",), "graph-retained", 0.0, 0.01)
    monkeypatch.setattr(speed, "gained_rows", lambda *args: iter([row]))
    options = ["--suite", "speed", "--seeds", "1", "--faults", "leak", "--json", str(tmp_path / "rows.json")]
    done = CliRunner().invoke(group, ["bench", *options], catch_exceptions=False)
    assert "first cause right 1/1" in done.output
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][0]["near"] is True
    wrong = CliRunner().invoke(group, ["bench", "--suite", "speed", "--faults", "leek"])
    assert "no inefficiency is called 'leek'" in str(wrong.exception)
