"""Update sizes, waits, distinct rows and validation passes against plain loops and simulated runs."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.distinct import distinct_rows, share_seen
from lossdoctor.derive.unseen import field_series, seen_passes, unseen_passes
from lossdoctor.derive.update import displacements, update_sizes, update_spread
from lossdoctor.derive.wait import wait_share

SHAPES = [[4, 3], [4], [2, 4], [2, 2, 3]]
NAMES = ("a.weight", "a.bias", "b.weight", "c.weight")


def wide(seed: int, **replaced: Any) -> Training:
    draw = np.random.default_rng(seed)
    steps = [0, 5, 10, 15]
    gradient = draw.uniform(0.1, 1, (4, 4))
    gradient[draw.random((4, 4)) < 0.2] = 0.0
    gradient[draw.random((4, 4)) < 0.2] = math.nan
    parameters = [{"shape": shape, "requires_grad": True} for shape in SHAPES]
    signals = {
        "update_ratios": Series.of(draw.lognormal(-5, 2, (4, 4)), steps, NAMES),
        "grad_norms": Series.of(gradient, steps, NAMES),
        "displacements": Series.of(draw.uniform(0, 1, (4, 4)), steps, NAMES),
    }
    return Training(signals={**signals, **replaced}, facts={"parameters": parameters})


@pytest.mark.parametrize("seed", range(20))
def test_update_sizes_are_medians_over_weights_that_have_a_gradient(seed: int) -> None:
    training = wide(seed)
    rows, columns = [], {0: [], 2: [], 3: []}
    for ratios, gradients in zip(training.signals["update_ratios"].values, training.signals["grad_norms"].values, strict=True):
        kept = {i: float(ratios[i]) for i in (0, 2, 3) if gradients[i] > 0}
        rows.append(list(kept.values()))
        for i, ratio in kept.items():
            columns[i].append(ratio)
    assert update_sizes(training).values.tolist() == pytest.approx([statistics.median(row) for row in rows if row])
    medians = [statistics.median(column) for column in columns.values() if column]
    spread = update_spread(training)
    assert spread is not None
    assert (spread.smallest, spread.largest) == pytest.approx((min(medians), max(medians)))
    moved = training.signals["displacements"].values
    assert displacements(training).values.tolist() == pytest.approx([statistics.median([row[0], row[2], row[3]]) for row in moved])


def test_frozen_weights_take_no_part() -> None:
    training = wide(0)
    training.facts["parameters"][0]["requires_grad"] = False
    training.facts["parameters"][2]["requires_grad"] = False
    assert displacements(training).last == training.signals["displacements"].values[-1, 3]


def test_weights_that_start_at_zero_take_no_part() -> None:
    training = wide(0)
    training.signals["update_ratios"].values[0, 2] = 1e10
    training.signals["displacements"].values[:, 2] = 1e12
    assert displacements(training).values.max() < 1.0
    assert update_sizes(training).values.max() < 1e6


def test_update_sizes_without_any_gradient_are_empty() -> None:
    training = wide(1, grad_norms=Series.of(np.zeros((4, 4)), [0, 5, 10, 15], NAMES))
    assert len(update_sizes(training)) == 0
    assert update_spread(training) is None
    with pytest.raises(SignalMissing):
        update_sizes(Training())


STEP_TIMES = st.lists(st.tuples(st.floats(1e-4, 0.1), st.floats(0, 1), st.floats(0, 1)), min_size=11, max_size=60)


@given(STEP_TIMES, st.integers(0, 59))
def test_wait_share_is_waiting_over_all_in_the_middle_stretch(times: list[tuple[float, float, float]], validated: int) -> None:
    wall = np.cumsum([time for time, _, _ in times])
    loader, idle = ([time * share[i] for time, *share in times] for i in (0, 1))
    begin = wall[validated] + 1e-9 if validated < len(times) - 1 else 1e9
    found = wait_share(Series.of(wall), Series.of(loader), Series.of(idle), excluded=[(begin, begin + 1e-8)])
    durations = [math.nan, *np.diff(wall).tolist()]
    kept = [each for i, each in enumerate(zip(durations, loader, idle, strict=True)) if i > 0 and i - 1 != validated]
    if len(kept) < 10:
        assert found is None
        return
    assert found is not None
    shares = []
    for part in np.array_split(np.arange(len(kept)), 10):
        rows = [kept[i] for i in part]
        if rows:
            loading = sum(row[1] for row in rows) / sum(row[0] for row in rows)
            usual = max(statistics.median(row[i] for row in rows) for i in (1, 2) if i == 1 or len(rows) >= 3)
            shares.append(min(1.0, max(loading, usual / statistics.median(row[0] for row in rows))))
    assert found.share == pytest.approx(statistics.median(shares), rel=1e-3, abs=1e-6)
    assert found.steady == pytest.approx(float(np.quantile(shares, 0.25)), rel=1e-3, abs=1e-6)


def test_a_thread_that_is_held_up_now_and_then_does_not_wait_for_data() -> None:
    durations = np.where(np.arange(400) % 20 == 7, 0.02, 0.001)
    idle = np.where(np.arange(400) % 20 == 7, 0.019, 0.0)
    found = wait_share(Series.of(np.cumsum(durations)), None, Series.of(idle))
    assert found is not None
    assert found.share == 0.0


def test_a_thread_that_is_held_up_where_it_is_asked_does_not_wait_for_data() -> None:
    asked = np.arange(400) % 3 == 0
    gap = np.where(asked, 0.01, 0.0001)
    idle = np.where(asked, 0.0099, np.nan)
    found = wait_share(Series.of(np.cumsum(gap + 0.001)), None, Series.of(idle), Series.of(gap))
    assert found is not None
    assert found.share < 0.1


def test_a_loader_that_pauses_at_every_fourth_batch_is_waiting() -> None:
    durations = np.where(np.arange(400) % 4 == 0, 0.013, 0.001)
    loader = np.where(np.arange(400) % 4 == 0, 0.012, 0.0)
    found = wait_share(Series.of(np.cumsum(durations)), Series.of(loader), None)
    assert found is not None
    assert found.share == pytest.approx(0.75, rel=0.02)
    assert found.total_seconds == pytest.approx(1.2, rel=0.02)


def test_wait_that_was_not_measured_counts_as_none_and_few_steps_tell_nothing() -> None:
    wall = Series.of([0.1 * i for i in range(30)])
    found = wait_share(wall, Series.of([math.nan] * 30), Series.of([math.nan] * 30))
    assert found is not None
    assert found.share == 0.0
    assert wait_share(Series.of([0.1, 0.2]), None, None) is None


def test_speedup_is_amdahls() -> None:
    found = wait_share(Series.of([0.1 * i for i in range(30)]), Series.of([0.08] * 30), None)
    assert found is not None
    assert found.speedup == pytest.approx(5.0)


@pytest.mark.parametrize("rows", [40, 300, 1500])
def test_distinct_rows_of_a_simulated_run(rows: int) -> None:
    draw = np.random.default_rng(rows)
    batches = []
    for _ in range(20):  # epochs without putting back; three tenths of the batches is hashed
        order = draw.permutation(rows)
        batches += [[f"{row}" for row in order[at : at + 32]] for at in range(0, rows, 32) if draw.random() < 0.3]
    found = distinct_rows(batches)
    assert found.seen == len({row for batch in batches for row in batch})
    assert found.estimate is not None
    assert 0.95 * rows <= found.estimate <= 1.3 * rows


def test_rows_that_never_repeat_have_no_estimate() -> None:
    found = distinct_rows([[f"{batch}-{row}" for row in range(32)] for batch in range(20)])
    assert found.seen == 640
    assert found.estimate is None
    assert distinct_rows([]).estimate is None


def test_share_seen() -> None:
    assert share_seen(["a", "b", "c", "d"], {"a", "d", "z"}) == 0.5
    assert share_seen([], {"a"}) is None


def test_passes_are_sorted_by_whether_their_rows_were_trained_on() -> None:
    rows = [
        Row(10, {"rows": 400, "seen": 0.0, "loss": 1.0}),
        Row(10, {"rows": 1400, "seen": 1.0, "loss": 0.9}),
        Row(20, {"rows": 400, "seen": None, "loss": 0.8}),
        Row(20, {"rows": 1400, "seen": None, "loss": 0.4}),
        Row(30, {"rows": 7, "seen": 0.0, "loss": 9.0}),
    ]
    training = Training(rows={"validation": rows})
    unseen = field_series(unseen_passes(training), "loss")
    assert (unseen.steps.tolist(), unseen.values.tolist()) == ([10, 20], [1.0, 0.8])
    assert field_series(seen_passes(training), "loss").values.tolist() == [0.9, 0.4]


def test_a_pass_over_training_data_is_recognised_though_few_rows_were_hashed() -> None:
    hashed = [Row(step, {"hashes": [f"{step}-{i}" for i in range(50)]}) for step in range(2)]
    rows = [Row(10, {"rows": 400, "seen": 0.0}), Row(10, {"rows": 1000, "seen": 0.09})]
    training = Training(rows={"validation": rows, "row_hashes": hashed}, facts={"loader": {"rows": 1000}})
    assert [row["rows"] for row in unseen_passes(training)] == [400]
    assert [row["rows"] for row in seen_passes(training)] == [1000]


def test_without_hashes_all_passes_count_as_unseen() -> None:
    training = Training(rows={"validation": [Row(10, {"loss": 1.0}), Row(20, {"loss": 0.5})]})
    assert len(unseen_passes(training)) == 2
    assert seen_passes(training) == []
