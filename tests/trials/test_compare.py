"""Levels, effects, intervals and verdicts of trials."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lossdoctor.core.run import Row, Series, Training
from lossdoctor.trials.compare import CONFIDENCE, LOOKS, SMALLEST, Effect, compared, effect_of, loss_level, moved, verdict


def training(loss: list[float], validation: list[float] | None = None) -> Training:
    rows = [Row((i + 1) * 10, {"loss": value, "correct": None}) for i, value in enumerate(validation or [])]
    return Training(signals={"loss": Series.of(loss)}, rows={"validation": rows} if rows else {})


def test_the_interval_is_students() -> None:
    values = [0.5, 0.6, 0.4]
    t = stats.t.ppf(1 - (1 - CONFIDENCE) / LOOKS / 2, 2)
    half = t * np.std(values, ddof=1) / np.sqrt(3)
    found = effect_of(values)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_one_pair_tells_nothing() -> None:
    assert verdict(effect_of([1.0]), None) == "unclear"


def test_arms_that_are_alike_refute() -> None:
    assert verdict(effect_of([0.0, 0.0]), None) == "refuted"


def test_a_worse_validation_keeps_a_lower_loss_from_being_confirmed() -> None:
    good = Effect(0.9, 0.8, 1.0)
    assert verdict(good, Effect(-0.5, -0.6, -0.4)) == "unclear"
    assert verdict(good, Effect(0.0, -0.6, 0.6)) == "confirmed"


def test_an_effect_that_is_clear_and_small_is_refuted() -> None:
    assert verdict(Effect(0.05, 0.04, 0.06), None) == "refuted"
    assert SMALLEST > 0.06


def test_a_loss_that_is_not_finite_is_worse_than_any() -> None:
    control, treated = training([2.3, 9.0, math.nan]), training([2.3, 2.0, 1.9])
    assert compared("loss", control, treated, 3) == (math.inf, 1.9, 1.0)
    assert compared("loss", treated, control, 3) == (1.9, math.inf, -1.0)
    assert moved(math.inf, math.inf) == 0.0


def test_only_the_steps_that_both_took_are_compared() -> None:
    assert loss_level(training([5.0] * 10 + [0.1] * 10), 10) == 5.0


def test_validation_falls_back_on_its_score() -> None:
    control, treated = training([1.0] * 30), training([1.0] * 30)
    for each, score in ((control, 0.5), (treated, 0.9)):
        each.rows["validation"] = [Row(20, {"loss": None, "correct": score})]
    found = compared("validation", control, treated, 30)
    assert found == pytest.approx((0.5, 0.1, 0.8))


def test_differences_between_good_levels_count_little() -> None:
    call = Row(0, {"kind": "cross_entropy", "class_counts": [50, 50], "guess_loss": 0.693, "zero_loss": 0.693})
    control, treated = training([0.002] * 20), training([0.001] * 20)
    control.rows["loss_call"] = [call]
    found = compared("loss", control, treated, 20)
    assert found is not None
    assert found[2] < SMALLEST


def test_what_was_not_recorded_is_not_compared() -> None:
    assert compared("validation", training([1.0]), training([1.0]), 1) is None
    assert compared("wait_share", training([1.0]), training([1.0]), 1) is None


def test_a_signal_that_should_rise_is_better_where_it_is_higher() -> None:
    leaking, masked = training([0.02] * 20), training([1.5] * 20)
    found = compared("loss", leaking, masked, 20, up=True)
    assert found is not None
    assert found[2] > 0.9
    assert compared("loss", leaking, masked, 20) == (*found[:2], -found[2])


def test_the_main_term_is_measured_by_its_own_guess_and_not_by_the_whole_loss() -> None:
    def sum_of_terms(call: float) -> Training:
        signals = {"loss": Series.of([137.0] * 20), "call_value": Series.of([call] * 20)}
        return Training(signals=signals, rows={"loss_call": [Row(0, {"kind": "mse_loss", "guess_loss": 0.9})]})

    found = compared("call_value", sum_of_terms(0.97), sum_of_terms(0.13), 20)
    assert found is not None
    assert found[2] == pytest.approx(0.84 / 0.97)


def test_a_loss_with_weights_is_set_against_the_even_answer_and_one_without_against_the_frequencies() -> None:
    def classes(loss: float, weighted: bool) -> Training:
        call = {"kind": "cross_entropy", "class_counts": [30, 2], "guess_loss": 0.23, "zero_loss": 0.69, "weighted": weighted}
        return Training(signals={"loss": Series.of([loss] * 40)}, rows={"loss_call": [Row(step, call) for step in range(40)]})

    found = compared("loss_call", classes(0.23, weighted=False), classes(0.30, weighted=True), 40)  # 0.30 > 0.23, and much better
    assert found is not None
    assert found[0] == pytest.approx(1.0, abs=0.05)
    assert found[1] == pytest.approx(0.30 / 0.69)
    assert found[2] > 0.5


def graphs(kept: list[int], raised: bool = False) -> Training:
    rows = [Row(i, {"kept": each, "reach": 0, "raised": raised and i == len(kept) - 1}) for i, each in enumerate(kept)]
    return Training(rows={"backward_graph": rows})


def test_graphs_that_are_kept_are_counted_and_a_few_are_as_good_as_none() -> None:
    found = compared("backward_graph", graphs([0, 20, 40]), graphs([0, 0, 0]), 3)
    assert found == (40.0, 0.0, 1.0)
    few = compared("backward_graph", graphs([0, 0, 3]), graphs([0, 0, 0]), 3)
    assert few is not None
    assert few[2] < SMALLEST
    assert compared("backward_graph", graphs([0, 1], raised=True), graphs([0, 1]), 2) == (math.inf, 1.0, 1.0)


def test_growth_of_memory_is_counted_behind_the_first_quarter_and_from_some_megabytes_on() -> None:
    def grown(megabytes: float) -> Training:
        values = [500e6, 900e6, *(900e6 + megabytes * 1e6 * i / 6 for i in range(1, 7))]
        return Training(signals={"memory": Series.of(values, list(range(0, 80, 10)))})

    large = compared("memory", grown(200), grown(0), 80)
    small = compared("memory", grown(1), grown(0), 80)
    assert large is not None
    assert small is not None
    assert large[2] > 0.9
    assert small[2] < SMALLEST


def test_the_time_of_a_step_is_that_of_the_last_steps() -> None:
    slower = Training(signals={"wall": Series.of([0.1 * i + 0.01 * i * i for i in range(50)])})
    steady = Training(signals={"wall": Series.of([0.1 * i for i in range(50)])})
    found = compared("step_time", slower, steady, 50)
    assert found is not None
    assert found[1] == pytest.approx(0.1)
    assert found[2] > 0.85
