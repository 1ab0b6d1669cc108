"""Several runs in one log: restarts, resumed runs, seeds, ranks, repeated lines."""

from __future__ import annotations

import numpy as np
import pytest

from lossdoctor.core.run import Run
from lossdoctor.readers import read
from lossdoctor.readers.judge import judge
from lossdoctor.readers.parts.load import load, run_of
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Table


def run(**columns: list[float]) -> Run:
    return run_of([Table.of(columns)], "made")


def text_run(text: str) -> Run:
    return load(Source.of(text.encode()))


def starts(made: Run) -> list[float]:
    return [training.signals["loss"].first for training in made.trainings]


def test_a_count_that_begins_anew_is_another_run() -> None:
    made = run(epoch=[0, 1, 2, 0, 1, 2], loss=[2.0, 1.0, 0.8, 2.1, 1.1, 0.9])
    assert starts(made) == [2.0, 2.1]
    assert [training.facts["log_part"] for training in made.trainings] == ["first", "restart"]


def test_a_run_that_died_in_its_first_epoch() -> None:
    assert len(run(epoch=[1, 1, 2, 3], loss=[2.0, 2.1, 1.0, 0.9]).trainings) == 2


def test_a_resumed_run_stays_one_without_the_rows_it_did_twice() -> None:
    steps = [*range(0, 100, 10), *range(60, 150, 10)]
    made = run(step=steps, loss=[2.0 - 0.01 * step for step in steps])
    assert len(made.trainings) == 1
    loss = made.trainings[0].signals["loss"]
    assert loss.steps.tolist() == list(range(0, 150, 10))
    assert made.trainings[0].facts["log_resumes"][0] == pytest.approx(
        {"at": 60.0, "lost": 4, "before": 1.52, "after": 1.3, "noise": 0.0}, abs=0.2
    )


def test_a_resume_that_lifts_the_loss_is_told() -> None:
    steps = [*range(0, 1000, 10), *range(800, 1500, 10)]
    losses = [2.0 * 0.998**step if i < 100 else 2.0 * 0.998**step + 0.8 * 0.97 ** (i - 100) for i, step in enumerate(steps)]
    diagnosis = judge(run(step=steps, loss=losses, lr=[1e-4] * 100 + [1e-3] * 70))
    assert diagnosis.verdict == "resume-without-state"


def test_steps_that_count_within_each_epoch_are_counted_on() -> None:
    made = run(epoch=[1, 1, 2, 2, 3, 3], iter=[50, 100, 50, 100, 50, 100], loss=[2.0, 1.8, 1.6, 1.5, 1.4, 1.3])
    assert len(made.trainings) == 1
    assert np.all(np.diff(made.trainings[0].signals["loss"].steps) > 0)


def test_lines_that_repeat_the_one_before_count_once() -> None:
    made = run(step=[1, 1, 2, 2, 3, 3], loss=[2.0, 2.0, 1.5, 1.5, 1.0, 1.0])
    assert made.trainings[0].signals["loss"].values.tolist() == [2.0, 1.5, 1.0]


def test_ranks_that_name_themselves() -> None:
    lines = [f"[rank{rank}]: step {step} loss: {2.0 - 0.1 * step + rank}" for step in range(6) for rank in (0, 1)]
    made = text_run("\n".join(lines))
    assert starts(made) == [2.0, 3.0]
    assert [training.facts["log_part"] for training in made.trainings] == ["rank", "rank"]


def test_ranks_without_a_name() -> None:
    steps = [step for step in range(10) for _ in range(4)]
    losses = [2.0 - 0.1 * step + 0.01 * rank for step in range(10) for rank in range(4)]
    made = run(step=steps, loss=losses)
    assert starts(made) == pytest.approx([2.0, 2.01, 2.02, 2.03])


def test_a_header_in_the_middle() -> None:
    made = text_run("epoch,loss\n0,2.0\n1,1.0\nepoch,loss\n0,2.2\n1,1.2\n")
    assert starts(made) == [2.0, 2.2]


def test_a_marker_without_a_count_that_falls() -> None:
    made = text_run("Starting training...\nEpoch 1/5\nLoss: 2.0\nStarting training...\nEpoch 1/5\nLoss: 2.2\nEpoch 2/5\nLoss: 1.2\n")
    assert starts(made) == [2.0, 2.2]


def test_planned_epochs_belong_to_their_run() -> None:
    made = text_run("".join(f"Epoch [{epoch}/{of}], Train Loss: {2.0 / epoch}\n" for of in (100, 15) for epoch in (1, 2, 3)))
    assert [training.facts["planned_epochs"] for training in made.trainings] == [100, 15]


def test_the_worst_run_is_the_verdict_and_each_is_told() -> None:
    good = [2.3 * 0.9**i + 0.3 for i in range(20)]
    bad = [2.3, 2.2, *[float("nan")] * 18]
    diagnosis = read({"epoch": list(range(20)) * 2, "loss": [*good, *bad]})
    assert diagnosis.verdict == "loss-not-finite"
    assert [each["verdict"] for each in diagnosis.trainings] == ["runs-concatenated", "loss-not-finite"]
    assert any("2 runs, 1 of them" in note for note in diagnosis.notes)


def test_a_run_that_goes_on_from_trained_weights_is_not_flat() -> None:
    first = [2.3 * 0.8**i + 0.02 for i in range(30)]
    second = [0.0225, 0.0226, 0.0224, 0.0225, 0.0226, 0.0225, 0.0224, 0.0225, 0.0226, 0.0225]
    diagnosis = read({"epoch": [*range(30), *range(10)], "loss": [*first, *second]})
    assert diagnosis.verdict == "runs-concatenated"


def test_a_count_that_goes_to_and_fro_is_no_count() -> None:
    steps = [float(step) for pair in zip(range(0, 60, 2), range(1, 61, 2), strict=True) for step in reversed(pair)]
    made = run(step=steps, loss=[2.0 - 0.01 * step for step in steps])
    assert [len(training.signals["loss"]) for training in made.trainings] == [60]


def test_sixty_runs_are_split_and_judged() -> None:
    epochs = [epoch for _ in range(60) for epoch in range(10)]
    made = run(epoch=epochs, loss=[2.0 * 0.9**epoch for epoch in epochs])
    assert len(made.trainings) == 60
    assert judge(made).vitals["trainings"] == 60
