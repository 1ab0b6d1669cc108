"""The gap between unseen and training loss on made runs whose gap is known, and the scale of inputs against plain numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.generalisation import generalisation
from lossdoctor.derive.inputs import input_scale

STEPS = np.arange(50, 2001, 50)


def made(seed: int, scale: float = 1.0, **fields: Any) -> Training:
    """Build a run whose unseen loss is lowest (0.5) at step 600 and ends at 0.99, beside a training loss that falls to 0.05."""
    draw = np.random.default_rng(seed)
    unseen = np.where(STEPS < 600, 0.5 + 6e-6 * (STEPS - 600.0) ** 2, 0.5 + 3.5e-4 * (STEPS - 600.0))
    unseen = np.minimum(unseen, 2.3) + 0.01 * draw.normal(size=len(STEPS))
    trained = 0.05 + 2.25 * np.exp(-np.arange(2001) / 250.0) + 0.02 * draw.normal(size=2001)
    passes = [Row(int(step), {"rows": 300, "seen": 0.0, "loss": scale * loss, **fields}) for step, loss in zip(STEPS, unseen, strict=True)]
    call = Row(0, {"kind": "huber_loss", "guess_loss": 2.0 * scale, "zero_loss": 2.3 * scale})
    return Training(signals={"loss": Series.of(scale * np.maximum(trained, 0))}, rows={"validation": passes, "loss_call": [call]})


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
@pytest.mark.parametrize("seed", range(4))
def test_gap_and_rise_are_found_whatever_the_unit(seed: int, scale: float) -> None:
    found = generalisation(made(seed, scale))
    assert found is not None
    assert found.by_guess
    assert 450 <= found.course.best_step <= 750
    assert found.risen == pytest.approx((0.97 - 0.5) / 2.0, abs=0.03)
    assert found.gap == pytest.approx((0.97 - 0.06) / 2.0, abs=0.04)
    assert found.gap_at_best == pytest.approx((0.5 - 0.27) / 2.0, abs=0.08)


def test_passes_over_trained_rows_stand_for_the_training_loss() -> None:
    training = made(0)
    for step in STEPS:
        training.rows["validation"].append(Row(int(step), {"rows": 900, "seen": 1.0, "loss": 0.4}))
    found = generalisation(training)
    assert found is not None
    assert found.trained_last == pytest.approx(0.2)


def test_without_a_loss_the_share_of_wrong_answers_is_taken() -> None:
    training = made(0)
    rights = np.linspace(0.5, 0.9, len(STEPS))
    training.rows["validation"] = [Row(int(s), {"rows": 300, "seen": 0.0, "correct": float(r)}) for s, r in zip(STEPS, rights, strict=True)]
    training.rows["loss_call"][0].fields["class_counts"] = [5, 5, 5, 5, 5]  # type: ignore[index]
    found = generalisation(training)
    assert found is not None
    assert found.measure == "error"
    assert found.reference == pytest.approx(0.8)
    assert found.last == pytest.approx(0.1 / 0.8, abs=0.03)


def test_a_score_that_was_not_followed_to_the_end_is_no_score() -> None:
    training = made(0)
    for row in training.rows["validation"][:10]:
        row.fields["correct"] = 0.5  # type: ignore[index]
    early = generalisation(training)
    assert early is not None
    assert early.score == ""
    for row in training.rows["validation"]:
        row.fields["correct"] = 0.5  # type: ignore[index]
    followed = generalisation(training)
    assert followed is not None
    assert followed.score_error == pytest.approx(math.sqrt(0.25 / 300))


def test_what_carries_over_is_judged_by_the_spread_of_the_unseen_targets() -> None:
    training = made(0, r2=0.02)
    found = generalisation(training)
    assert found is not None
    assert found.best < 0.3, "by the training targets the best loss is far below guessing"
    assert found.carried == pytest.approx(0.98), "the unseen targets spread less: nothing was learnt of them"


def test_what_cannot_be_compared() -> None:
    assert generalisation(Training(signals={"loss": Series.of([1.0, -1.0] * 20)}, rows=made(0).rows | {"loss_call": []})) is None
    assert generalisation(Training(signals={"loss": Series.of([math.nan] * 20)}, rows=made(0).rows)) is None
    with pytest.raises(SignalMissing):
        generalisation(Training(signals={"loss": Series.of([1.0, 0.5])}))


def described(values: np.ndarray, **more: Any) -> dict[str, Any]:
    means, stds = values.mean(0), values.std(0)
    fields = {"shape": list(values.shape), "integer": False, "mean": float(values.mean()), "std": float(values.std())}
    return {
        **fields,
        "min": float(values.min()),
        "max": float(values.max()),
        "feature_means": means.tolist(),
        "feature_stds": stds.tolist(),
        **more,
    }


def test_input_scale_is_the_root_mean_square_of_each_feature_over_the_batches() -> None:
    draw = np.random.default_rng(0)
    batches = [draw.normal([0, 5, -300, 0.1], [1, 2, 40, 0.01], (32, 4)) for _ in range(10)]
    found = input_scale([Row(i, {"inputs": [described(batch)]}) for i, batch in enumerate(batches)])
    sizes = np.sqrt((np.concatenate(batches) ** 2).mean(0))
    assert found is not None
    assert found.largest == pytest.approx(sizes.max())
    assert found.typical == pytest.approx(np.median(sizes))
    assert (found.low, found.high) == pytest.approx((np.min(batches), np.max(batches)))
    assert found.steps == (0, 9)


def test_without_features_the_whole_tensor_is_measured() -> None:
    values = np.random.default_rng(1).uniform(0, 255, (8, 3))
    found = input_scale([Row(0, {"inputs": [described(values, feature_means=None, feature_stds=None)]})])
    assert found is not None
    assert found.largest == pytest.approx(math.sqrt((values**2).mean()))


def test_names_and_single_numbers_have_no_scale_and_the_farthest_input_counts() -> None:
    small, large = described(np.full((4, 2), 0.5)), described(np.full((4, 2), 90.0))
    token = described(np.full((4, 2), 5000.0), integer=True)
    time = described(np.full((4, 1), 1000.0), shape=[4])
    assert input_scale([Row(0, {"inputs": [token, time]})]) is None
    found = input_scale([Row(0, {"inputs": [token, small, large]})])
    assert found is not None
    assert found.largest == pytest.approx(90.0)
