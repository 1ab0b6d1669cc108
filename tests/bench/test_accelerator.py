"""A made accelerator: what waits, overlap and busy shares are told by rules, held against what happens without the waits."""

from __future__ import annotations

import pytest

from lossdoctor.bench.accelerator import MOST_QUEUED, Operation, network, play, reads, without
from lossdoctor.bench.inefficiencies import LEVELS
from lossdoctor.bench.speed import simulated
from lossdoctor.core.fault import Level, find_fault
from lossdoctor.core.run import Training
from lossdoctor.derive.timeline import busy_seconds, exposed_seconds, lateness, union
from lossdoctor.diagnose.engine import judge


def judged(training: Training) -> tuple[str, float]:
    finding = judge(find_fault("host-sync"), training)
    return finding.status, finding.gain.get("time", 0.0)


@pytest.mark.parametrize("level", LEVELS)
def test_reads_in_every_step_are_named_with_the_gain_of_leaving_them_out(level: Level) -> None:
    row = simulated(level)
    assert row.named
    assert row.near
    assert row.measured > 0.05


def test_where_the_device_is_at_work_all_the_time_reading_costs_nothing() -> None:
    step = reads(list(network(12, 200e-6)), [(120, ("train.py", 31))])
    sick, mended = play(step), play(without(step))
    assert 1 - mended.step_seconds / sick.step_seconds < 0.02
    assert sick.busy_share > 0.95
    assert judged(sick.training())[0] == "absent"


def test_without_reads_there_is_nothing_to_say() -> None:
    assert judged(play(list(network(12, 10e-6))).training())[0] == "absent"


def test_the_longest_wait_is_named_first() -> None:
    finding = judge(find_fault("host-sync"), play(reads(list(network(12, 12e-6)), [(3, ("a.py", 1)), (120, ("b.py", 2))])).training())
    assert finding.where is not None
    assert (finding.where.file, finding.where.line) == ("b.py", 2)
    assert "b.py:2" in finding.fix
    assert "a.py:1" in finding.fix


def test_a_host_runs_ahead_only_as_far_as_the_queue_reaches() -> None:
    free = play([Operation(1e-6, 10e-6)] * 100, steps=200)
    assert free.ends[-1] == pytest.approx(100 * 200 * 10e-6 - MOST_QUEUED * 10e-6, rel=0.01)


def test_copies_on_a_queue_of_their_own_are_hidden_and_on_the_same_queue_are_not() -> None:
    compute, copy = Operation(2e-6, 100e-6), Operation(2e-6, 80e-6, queue="copy")
    hidden = play([compute, copy] * 5)
    assert hidden.exposed("copy") < 0.05 * busy_seconds(hidden.spans["copy"])
    shown = play([compute, Operation(2e-6, 80e-6, queue="copy", waits=True)] * 5)
    assert shown.exposed("copy") == pytest.approx(0.0, abs=0.2 * busy_seconds(shown.spans["copy"]))
    alone = play([Operation(2e-6, 80e-6, queue="copy", waits=True)] * 5)
    assert alone.exposed("copy") == pytest.approx(busy_seconds(alone.spans["copy"]))


def test_spans_are_joined_and_what_is_behind_them_is_hidden() -> None:
    """A slow, obvious twin: milliseconds are counted one by one."""
    first, second = [(0, 5), (3, 8), (20, 21)], [(4, 6), (30, 40)]
    covered = {tick for began, ended in first for tick in range(began, ended)}
    behind = {tick for began, ended in second for tick in range(began, ended)}
    spans, others = [(float(a), float(b)) for a, b in first], [(float(a), float(b)) for a, b in second]
    assert busy_seconds(spans) == len(covered)
    assert exposed_seconds(spans, others) == len(covered - behind)
    assert union([(1.0, 0.0)]) == []


def test_lateness_is_counted_from_the_first_rank_over_the_steps_that_all_have() -> None:
    assert lateness([[1.0, 2.0, 9.0], [1.5, 2.0]]).tolist() == [[0.0, 0.0], [0.5, 0.0]]
    assert lateness([]).size == 0
