"""The table of confirmed cases: which printed number is the script's own metric, what counts, what is said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lossdoctor.bench.cases import Tried, cases, main, summary
from lossdoctor.bench.printed import Metric, metric

SICK = "step 1 loss 2.30\nepoch  9 train loss 2.301 val loss 2.302 val acc 0.10"
MENDED = "step 1 loss 2.30\nepoch 10 train loss 0.010 val loss 0.200 val acc 0.95"


def test_the_metric_is_of_unseen_rows_and_tells_the_runs_apart_best() -> None:
    found = metric(SICK, MENDED, MENDED.replace("0.200", "0.400"))
    assert found is not None
    assert (found.name, found.sick, found.mended, found.treated) == ("val loss", 2.302, 0.2, 0.4)
    assert found.recovered == pytest.approx((2.302 - 0.4) / (2.302 - 0.2))


@pytest.mark.parametrize(
    ("sick", "mended", "name"),
    [
        ("loss 0.5 val auc 0.80 took 9 s", "loss 0.5 val auc 0.81 took 2 s", "took"),
        ("epoch 120 val R2 0.2", "epoch 60 val R2 0.5", "val R2"),
        ("epoch 2 chunk 48  239.5 ms/chunk", "epoch 2 chunk 48  11.9 ms/chunk", "ms/chunk"),
        ("loss 0.5 val acc 0.80 (9.0s)", "loss 0.1 val acc 0.99 (0.1s)", "val acc"),
        ("val loss nan", "val loss 0.1", "val loss"),
        ("loss 1.0 val loss 1.0", "loss 0.99 val loss 0.98", None),
        ("loss 1.0", "the loss: 0.1", None),
    ],
)
def test_counts_are_no_metric_and_numbers_that_are_alike_neither(sick: str, mended: str, name: str | None) -> None:
    found = metric(sick, mended, mended)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("sick", "treated", "share"),
    [(2.0, 1.0, 1.0), (2.0, 2.0, 0.0), (2.0, 3.0, -1.0), (math.nan, 1.0, 1.0), (math.nan, 4.0, 0.25), (2.0, math.nan, 0.0)],
)
def test_what_is_got_back(sick: float, treated: float, share: float) -> None:
    assert Metric("loss", sick, 1.0, treated).recovered == pytest.approx(share)


def _case(folder: Path, name: str, *scripts: str) -> None:
    (folder / name).mkdir()
    (folder / name / "case.json").write_text(json.dumps({"expected": [["lr-too-low"]]}))
    for script in scripts:
        (folder / name / script).write_text("print(1)")


def test_only_cases_with_a_mended_twin_are_tried(tmp_path: Path) -> None:
    _case(tmp_path, "a-1", "broken.py", "fixed.py")
    _case(tmp_path, "a-2", "broken.py")
    _case(tmp_path, "b-1", "broken.py", "fixed.py")
    assert [case.name for case in cases(tmp_path)] == ["a-1", "b-1"]
    assert [case.name for case in cases(tmp_path, ["b-"])] == ["b-1"]


def test_an_absent_folder_is_skipped(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(tmp_path / "none")])
    assert done.exit_code == 0
    assert "skipped" in done.output


def _tried(verdict: str = "lr-too-low", trial: str = "confirmed", treated: float = 1.1, took: float = 30.0) -> Tried:
    return Tried("a", verdict, True, {verdict: trial}, (verdict,), True, Metric("loss", 2.0, 1.0, treated), (8.0, 25.0, took))


def test_what_has_no_treatment_does_not_count() -> None:
    untold = replace(_tried("too-few-examples"), untreated=("too-few-examples",))
    said = summary([_tried(), _tried(trial="unclear"), _tried(treated=1.9), _tried(took=90.0), _tried("labels-meaningless"), untold])
    assert said.splitlines()[:2] == [
        "3 of 4 named causes that have a treatment were confirmed",
        "3 of 4 treated runs got back 80% of the gap",
    ]
    assert "3 of 4 cost at most twice the run" in said
    assert _tried().row().count("|") == 14
