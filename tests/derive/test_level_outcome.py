"""Levels of guessing against the best constant answer found by search, and outcomes of made curves."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import Level, expected_level, level_of_calls
from lossdoctor.derive.outcome import outcome


def class_call(labels: list[int], classes: int, **more: Any) -> Row:
    counts = [labels.count(index) for index in range(classes)]
    shares = [count / len(labels) for count in counts if count]
    own = -sum(share * math.log(share) for share in shares)
    return Row(0, {"kind": "cross_entropy", "class_counts": counts, "guess_loss": own, "zero_loss": math.log(classes), **more})


def distance_call(targets: np.ndarray, kind: str = "mse_loss") -> Row:
    loss = np.square if kind == "mse_loss" else np.abs
    own = min(float(loss(targets - answer).mean()) for answer in (targets.mean(), np.median(targets)))
    fields = {"target_mean": float(targets.mean()), "target_std": float(targets.std()), "target_shape": [len(targets), 1]}
    return Row(0, {"kind": kind, "guess_loss": own, "zero_loss": float(loss(targets).mean()), **fields})


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_guess_of_classes_is_the_entropy_of_all_labels_however_small_the_batches(rows: int) -> None:
    draw = np.random.default_rng(rows)
    labels = draw.choice(5, size=1024, p=[0.5, 0.2, 0.1, 0.1, 0.1])
    counts = Counter(labels.tolist())
    entropy = -sum(count / 1024 * math.log(count / 1024) for count in counts.values())
    level = level_of_calls([class_call(part.tolist(), 5) for part in np.split(labels, 1024 // rows)])
    assert level is not None
    assert level.guess == pytest.approx(entropy, abs=0.005)
    assert level.start == pytest.approx(math.log(5))


def test_guess_with_label_smoothing_is_the_best_constant_that_a_search_finds() -> None:
    call = class_call([0] * 6 + [1] * 3 + [2], 3, label_smoothing=0.2)
    targets = 0.8 * np.array([0.6, 0.3, 0.1]) + 0.2 / 3
    grid = np.random.default_rng(0).dirichlet([1, 1, 1], size=20000)
    best = float((-np.log(grid) @ targets).min())
    level = level_of_calls([call])
    assert level is not None
    assert level.guess == pytest.approx(best, abs=0.002)


def test_summed_losses_keep_their_unit() -> None:
    call = class_call([0] * 8 + [1] * 8, 2)
    summed = Row(0, {**call.fields, "guess_loss": 16 * math.log(2), "zero_loss": 16 * math.log(2)})
    level = level_of_calls([summed])
    assert level is not None
    assert level.guess == pytest.approx(16 * math.log(2), rel=0.01)


@pytest.mark.parametrize("kind", ["mse_loss", "l1_loss"])
@pytest.mark.parametrize("rows", [1, 8, 128])
def test_guess_of_a_regression_is_the_best_constant_over_all_batches(kind: str, rows: int) -> None:
    targets = 3 + 2 * np.random.default_rng(1).normal(size=1024)
    loss = np.square if kind == "mse_loss" else np.abs
    best = min(float(loss(targets - answer).mean()) for answer in np.linspace(2, 4, 201))
    level = level_of_calls([distance_call(part, kind) for part in np.split(targets, 1024 // rows)])
    assert level is not None
    assert level.guess == pytest.approx(best, rel=0.06)


def test_level_is_unknown_where_kinds_mix_or_backward_was_called_on_something_else() -> None:
    call = class_call([0, 1], 2)
    assert level_of_calls([call, distance_call(np.arange(4.0))]) is None
    assert level_of_calls([]) is None
    assert level_of_calls([Row(0, {"kind": "ctc_loss", "guess_loss": None, "zero_loss": None})]) is None
    assert expected_level(Training(rows={"loss_call": [call]}, facts={"loss_source": "backward"})) is None


def test_highest_level_is_that_of_the_rarer_answer() -> None:
    assert Level(0.1, 0.69).highest == 0.69


CURVES: dict[str, tuple[list[float], bool]] = {
    "falls": ([2.3 * 0.97**i for i in range(200)], False),
    "stays at guessing": ([2.3 + 0.02 * math.sin(i) for i in range(200)], True),
    "falls and comes back": ([2.3 * 0.9**i for i in range(60)] + [2.0] * 140, True),
    "ends as NaN": ([2.3 * 0.97**i for i in range(199)] + [math.nan], True),
    "NaN in the middle": ([2.3 * 0.97**i for i in range(100)] + [math.nan] + [0.1] * 99, False),
    "starts low": ([0.06] * 200, False),
    "noise leaves most of it": ([2.3] * 20 + [1.8] * 180, False),
    "spike at the end passes": ([2.3 * 0.97**i for i in range(190)] + [50.0] + [0.01] * 9, False),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e5])
def test_outcome_of_known_curves_whatever_their_unit(name: str, scale: float) -> None:
    values, failed = CURVES[name]
    found = outcome(Series.of([scale * value for value in values]), 2.3 * scale)
    assert found is not None
    assert found.failed == failed


def test_without_a_guess_the_start_is_the_reference_and_a_loss_of_both_signs_has_none() -> None:
    flat = outcome(Series.of([5.0] * 100))
    exploding = outcome(Series.of([1.0] + [100.0] * 99))
    signed = outcome(Series.of([1.0, -1.0] * 50))
    assert flat is not None
    assert flat.stuck
    assert exploding is not None
    assert exploding.stuck
    assert signed is not None
    assert signed.judged_by == "nothing"
    assert not signed.failed


def test_broken_from_is_the_first_of_the_values_that_stay_broken() -> None:
    found = outcome(Series.of([1.0, math.nan, 1.0, math.inf, math.nan]))
    assert found is not None
    assert found.broken_from == 3
    assert outcome(Series.of([math.nan, math.nan])) is None


def test_a_lucky_batch_is_no_best_level() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        found = outcome(Series.of(1.4 * draw.exponential(size=90)), 2.3)  # batches of one row, a task that leaves most of the loss
        assert found is not None
        assert not found.lost
