"""The commands `bench` and `demo`, without the scripts they run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lossdoctor.bench import matrix
from lossdoctor.bench.matrix import Outcome, Row
from lossdoctor.cli import group
from lossdoctor.core.diagnosis import HEALTHY
from lossdoctor.core.errors import LossdoctorError, UsageError


@pytest.fixture(autouse=True)
def _keep_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def named(laid: Sequence[Row], jobs: int, executor: Any = None) -> Iterator[Outcome]:
    for row in reversed(laid):
        yield Outcome(row, row.planted, why="seen [1, 2] of it", seconds=1.0)


def test_bench_prints_the_table_in_the_order_of_the_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix, "run_rows", named)
    options = ["--faults", "healthy,zero-grad-missing,LOP002", "--recipes", "digits", "--seeds", "2", "--first-seed", "5"]
    done = CliRunner().invoke(group, ["bench", *options, "--json", str(tmp_path / "bench.json")], catch_exceptions=False)
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert [(row["planted"], row["seed"]) for row in stored["rows"]] == [
        (planted, seed) for planted in (HEALTHY, "zero-grad-missing", "step-missing") for seed in (5, 6)
    ]
    assert "named 4/4 (51-100 %) of planted rows; 0 false alarms on 2 healthy rows" in done.output
    assert "6 of 6: healthy on digits, seed 5: healthy" in done.output


def test_an_interrupted_bench_shows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(laid: Sequence[Row], jobs: int) -> Iterator[Outcome]:
        yield Outcome(laid[0], HEALTHY)
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix, "run_rows", interrupted)
    done = CliRunner().invoke(group, ["bench", "--faults", "healthy", "--recipes", "digits"], catch_exceptions=False)
    assert "interrupted: the figures are of 1 of 5 rows" in done.output
    assert "0 false alarms on 1 healthy rows" in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--faults", "zero-grad-mising"], "did you mean 'zero-grad-missing'"),
        (["--recipes", "digit"], "no recipe is called 'digit'"),
        (["--levels", "middling"], "no level is called 'middling'; there are: mild, middle, severe"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(options: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        CliRunner().invoke(group, ["bench", *options], catch_exceptions=False)


def test_calibration_is_written_with_what_held_out_recipes_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lossdoctor.diagnose import confidence

    def strong(laid: Sequence[Row], jobs: int) -> Iterator[Outcome]:
        for row in laid:
            yield Outcome(row, row.planted, strengths={"step-missing": float(row.planted == "step-missing")})

    written: list[Any] = []
    monkeypatch.setattr(matrix, "run_rows", strong)
    monkeypatch.setattr(confidence, "write", written.append)
    options = ["--faults", "healthy,step-missing", "--recipes", "digits,regression", "--calibrate"]
    done = CliRunner().invoke(group, ["bench", *options], catch_exceptions=False)
    assert written[0]["step-missing"][0][1] < 0.1 < 0.9 < written[0]["step-missing"][-1][1]
    assert "held out digits: Brier score" in done.output
    assert "5 said to be present, 5 of them planted, 5 planted in all" in done.output


def test_demo_tells_each_line_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "run_rows", named)
    done = CliRunner().invoke(group, ["demo"], catch_exceptions=False)
    assert "10 of 10 named" in done.output
    assert "seen [1, 2]" in done.output
    assert done.output.rstrip().endswith("lossdoctor run train.py")


def test_demo_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(laid: Sequence[Row], jobs: int) -> Iterator[Outcome]:
        yield Outcome(laid[0], "failed", why="status 1: no module named sklearn")

    monkeypatch.setattr(matrix, "run_rows", failing)
    with pytest.raises(LossdoctorError, match="gave no report; the first: status 1: no module named sklearn"):
        CliRunner().invoke(group, ["demo"], catch_exceptions=False)
