"""A run folder is read back as it was written, also where a kill has cut it."""

import base64
import json

import numpy as np

from lossdoctor.core.store import load_run


def column(values):
    return base64.b64encode(np.asarray(values, dtype="<f8").tobytes()).decode()


def write(folder, lines, tail=""):
    (folder / "run.json").write_text(json.dumps({"format": 1, "script": "train.py"}))
    (folder / "record-1-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)


def track(number, keys, what="optimizer", began=0.0):
    return {"kind": "track", "track": number, "what": what, "began": began, "parameters": [{"key": key, "name": f"p{key}"} for key in keys]}


def steps(number, first, losses, wall, **more):
    columns = {"step": range(first, first + len(losses)), "backward_value": losses, "wall": wall, **more}
    return {"kind": "steps", "track": number, "columns": {name: column(list(values)) for name, values in columns.items()}}


def test_reads_steps_samples_and_facts(tmp_path):
    write(
        tmp_path,
        [
            track(0, [1]),
            steps(0, 0, [2.0, 1.0], [0.1, 0.2]),
            {"kind": "sample", "track": 0, "step": 1, "signal": "batch", "fields": {"mean": "nan"}},
            {"kind": "fact", "track": 0, "name": "optimizer", "value": {"name": "Adam"}},
        ],
        tail='{"kind": "sam',
    )
    training = load_run(tmp_path).trainings[0]
    assert training.series("loss").values.tolist() == [2.0, 1.0]
    assert np.isnan(training.table("batch")[0]["mean"])
    assert training.fact("optimizer")["name"] == "Adam"


def test_a_column_that_a_line_leaves_out_is_nan_there(tmp_path):
    first, broken, late = steps(0, 0, [2.0], [0.1]), steps(0, 1, [0.0, 0.0], [0.2, 0.3]), steps(0, 3, [0.0], [0.4], lr=[0.1])
    del broken["columns"]["backward_value"]
    write(tmp_path, [track(0, [1]), first, broken, late])
    training = load_run(tmp_path).trainings[0]
    np.testing.assert_equal(training.series("loss").values.tolist(), [2.0, np.nan, np.nan, 0.0])
    np.testing.assert_equal(training.series("lr").values.tolist(), [np.nan, np.nan, np.nan, 0.1])
    assert training.series("lr").steps.tolist() == [0, 1, 2, 3]


def test_a_loss_that_is_nan_throughout_is_nan_and_a_step_without_backward_has_none(tmp_path):
    broken = steps(0, 0, [0.0, 0.0], [0.1, 0.2], backwards=[1, 1])
    del broken["columns"]["backward_value"]
    write(tmp_path, [track(0, [1]), broken])
    assert np.isnan(load_run(tmp_path).trainings[0].series("loss").values).tolist() == [True, True]
    write(tmp_path, [track(0, [1]), steps(0, 0, [2.0, 4.0, np.nan], [0.1, 0.2, 0.3], backwards=[1, 2, 0])])
    loss = load_run(tmp_path).trainings[0].series("loss")
    assert (loss.steps.tolist(), loss.values.tolist()) == ([0, 1], [2.0, 2.0])
    write(tmp_path, [track(0, [1]), steps(0, 0, [np.nan] * 2, [0.1, 0.2], backwards=[0, 0])])
    assert not load_run(tmp_path).trainings[0].has("loss")


def test_interleaved_optimisers_are_roles_of_one_training(tmp_path):
    write(tmp_path, [track(0, [1]), track(1, [2]), steps(0, 0, [1, 1], [0.1, 0.3]), steps(1, 0, [1, 1], [0.2, 0.4])])
    trainings = load_run(tmp_path).trainings
    assert len(trainings) == 1
    assert len(trainings[0].roles) == 2


def test_later_optimiser_on_the_same_parameters_is_a_phase_and_on_fresh_ones_a_repeat(tmp_path):
    write(
        tmp_path,
        [
            track(0, [1]),
            steps(0, 0, [1, 1], [0.1, 0.2]),
            track(1, [1]),
            steps(1, 0, [1, 1], [0.3, 0.4]),
            track(2, [2]),
            steps(2, 0, [1, 1], [0.5, 0.6]),
        ],
    )
    assert [training.phase_of for training in load_run(tmp_path).trainings] == [None, 0, None]


def test_the_loss_is_the_call_only_where_it_is_a_constant_ratio_of_the_backward_value(tmp_path):
    write(
        tmp_path,
        [
            track(0, [1]),
            steps(0, 0, [0.5, 0.25], [0.1, 0.2], call_value=[2.0, 1.0]),
            track(1, [2]),
            steps(1, 0, [5.0, 9.0], [0.3, 0.4], call_value=[2.0, 1.0]),
        ],
    )
    scaled, summed = load_run(tmp_path).trainings
    assert scaled.series("loss").values.tolist() == [2.0, 1.0]
    assert summed.series("loss").values.tolist() == [5.0, 9.0]
