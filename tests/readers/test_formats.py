"""Every format is known by its content and read into the same signals."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lossdoctor.core.run import Run, Training
from lossdoctor.readers import load, read
from lossdoctor.readers.parts import load as parts
from lossdoctor.readers.parts.reader import readers
from lossdoctor.readers.parts.source import Source
from tests.readers.samples import SAMPLE, SAMPLES, Sample

every_sample = pytest.mark.parametrize("sample", [each for each in SAMPLES if each.losses], ids=lambda sample: sample.name)


def read_bytes(content: bytes) -> Run:
    return parts.load(Source.of(content))


def losses(training: Training) -> dict[int, float]:
    loss = training.signals["loss"]
    return dict(zip(loss.steps.tolist(), loss.values.tolist(), strict=True))


def same(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return (math.isnan(found) and math.isnan(expected)) or found == pytest.approx(expected, rel=1e-3)


@every_sample
def test_losses_stand_at_their_steps(sample: Sample) -> None:
    found = losses(read_bytes(sample.content).trainings[0])
    assert list(found) == list(sample.losses)
    assert all(same(found[step], value) for step, value in sample.losses.items())


@every_sample
def test_format_is_known_by_content(sample: Sample) -> None:
    assert read_bytes(sample.content).facts["format"] == sample.format


@every_sample
def test_validation_losses(sample: Sample) -> None:
    rows = read_bytes(sample.content).trainings[0].rows.get("validation", [])
    assert len(rows) == len(sample.validation)
    assert all(same(row["loss"], expected) for row, expected in zip(rows, sample.validation, strict=True))


@every_sample
def test_rates(sample: Sample) -> None:
    rates = read_bytes(sample.content).trainings[0].signals.get("lr")
    if sample.lr:
        assert rates is not None
        assert rates.values.tolist() == pytest.approx(list(sample.lr))


@every_sample
def test_number_of_runs(sample: Sample) -> None:
    assert len(read_bytes(sample.content).trainings) == sample.runs


@every_sample
def test_every_sample_gets_a_diagnosis(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "no-telling-name"
    path.write_bytes(sample.content)
    diagnosis = read(path)
    assert diagnosis.verdict
    assert not [finding for finding in diagnosis.findings if finding.status == "broke"]


@pytest.mark.parametrize("name", ["keras_csv", "plain", "hf_state", "detectron2"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_text_in_other_encodings(name: str, encoding: str) -> None:
    again = SAMPLE[name].content.decode().encode(encoding)
    assert losses(read_bytes(again).trainings[0]) == losses(read_bytes(SAMPLE[name].content).trainings[0])


@pytest.mark.parametrize("name", ["lightning", "tensorboard", "mlflow_db"])
def test_compressed_logs(name: str) -> None:
    assert losses(read_bytes(gzip.compress(SAMPLE[name].content)).trainings[0]) == losses(read_bytes(SAMPLE[name].content).trainings[0])


def test_scores_of_mmengine_stand_at_the_iteration_and_not_at_their_epoch() -> None:
    rows = read_bytes(SAMPLE["mmengine"].content).trainings[0].rows["validation"]
    assert [(row.step, row["metric"]) for row in rows] == [(100, 0.3)]


def test_terms_are_added_up_where_there_is_no_whole_loss() -> None:
    run = read_bytes(SAMPLE["yolo"].content)
    assert any("sum of train/box_loss, train/cls_loss" in note for note in run.notes)


def test_basicsr_reads_thousands_and_rates_in_brackets() -> None:
    training = read_bytes(SAMPLE["basicsr"].content).trainings[0]
    assert training.signals["loss"].steps.tolist() == [100, 1200]
    assert training.signals["log_wait"].values.tolist() == [0.247, 0.25]
    assert training.rows["validation"][0]["metric"] == 27.1


def test_number_of_classes_is_taken_from_the_settings() -> None:
    assert read_bytes(SAMPLE["headings"].content).trainings[0].facts["classes"] == 400


def test_keras_output_keeps_the_end_of_each_epoch() -> None:
    assert read_bytes(SAMPLE["keras_stdout"].content).trainings[0].facts["planned_epochs"] == 20


def test_evaluated_training_loss_stands_beside_the_validation() -> None:
    rows = read_bytes(SAMPLE["nanogpt"].content).trainings[0].rows["validation"]
    assert [row["train_loss"] for row in rows] == [2.55, 1.95]


def test_mlflow_folder_by_its_files(tmp_path: Path) -> None:
    metrics = tmp_path / "run" / "metrics"
    (metrics / "val").mkdir(parents=True)
    (metrics / "train_loss").write_text("1773124983070 2.5 0\n1773124993070 nan 1\n1773125003070 1.5 2\n1773125003071 1.9 2\n")
    (metrics / "val" / "loss").write_text("1773124983070 2.2 0\n")
    training = load(tmp_path / "run").trainings[0]
    assert all(same(losses(training)[step], value) for step, value in {0: 2.5, 1: math.nan, 2: 1.9}.items())
    assert training.rows["validation"][0]["loss"] == 2.2


def test_a_table_in_memory() -> None:
    import pandas

    columns = {"loss": [2.5, 1.9, 1.5], "val_loss": [2.2, 2.0, 1.9]}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    class History:
        history = columns

    for table in (columns, rows, pandas.DataFrame(columns), History(), {name: np.array(values) for name, values in columns.items()}):
        assert read(table).vitals["first_loss"] == pytest.approx(2.5)


def test_reading_imports_no_framework(tmp_path: Path) -> None:
    for sample in SAMPLES:
        (tmp_path / sample.name).write_bytes(sample.content)
    code = f"""
import pathlib, sys
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.readers import read
for path in pathlib.Path({str(tmp_path)!r}).iterdir():
    try:
        read(path)
    except LossdoctorError:
        pass
heavy = ("torch", "tensorflow", "pandas", "tensorboard", "wandb", "keras", "lightning", "plotly", "sklearn")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_reader_has_a_format_of_its_own() -> None:
    formats = [reader.format for reader in readers()]
    assert len(set(formats)) == len(formats)
