"""Cut, damaged, hostile and huge logs: a diagnosis or one clear sentence, never a traceback, never code that runs."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Run
from lossdoctor.readers.judge import judge
from lossdoctor.readers.parts.load import load
from lossdoctor.readers.parts.source import Source
from tests.readers.samples import SAMPLE, SAMPLES, database

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def survives(content: bytes, judged: bool = True) -> None:
    """Read and judge; only our own words may come out, on one line, and no rule may break."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run, words = read_or_refuse(content)
        assert "\n" not in words
        if judged and run is not None:
            assert not [finding for finding in judge(run).findings if finding.status == "broke"]


def read_or_refuse(content: bytes) -> tuple[Run | None, str]:
    try:
        return load(Source.of(content)), ""
    except LossdoctorError as error:
        return None, str(error)


def flipped(content: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(chance.choice([1, 1, 3, 20])):
        at = chance.randrange(len(damaged))
        damaged[at] = chance.randrange(256)
    return bytes(damaged)


@every_sample
def test_cut_at_some_bytes(sample: object) -> None:
    content: bytes = sample.content  # type: ignore[attr-defined]
    for stop in range(0, len(content) + 1, max(1, len(content) // 25)):
        survives(content[:stop])


@every_sample
def test_some_flipped_bytes(sample: object) -> None:
    content: bytes = sample.content  # type: ignore[attr-defined]
    for seed in range(20):
        survives(flipped(content, seed))


@pytest.mark.slow
@every_sample
def test_cut_at_every_byte(sample: object) -> None:
    content: bytes = sample.content  # type: ignore[attr-defined]
    for stop in range(len(content) + 1):
        survives(content[:stop], judged=stop % 50 == 0)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_pieces_of_logs_put_together(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3))
    content = b"".join(piece.content[data.draw(st.integers(0, 20)) : data.draw(st.integers(20, 2000))] for piece in pieces)
    survives(content + data.draw(st.binary(max_size=30)))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["loss", "val_loss", "epoch", "step", "lr", "acc"]), st.floats(allow_nan=True), st.sampled_from([":", "=", " "])
        ),
        max_size=60,
    )
)
def test_any_figures_in_lines(figures: list[tuple[str, float, str]]) -> None:
    survives("\n".join(f"{name}{sign}{value}" for name, value, sign in figures).encode())


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["loss", "val_loss", "epoch", "step", "lr", "grad_norm", "val_acc"]), st.lists(st.floats(), max_size=40), max_size=6
    )
)
def test_any_table(columns: dict[str, list[float]]) -> None:
    from lossdoctor.readers import read

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnosis = read(columns)
    assert not [finding for finding in diagnosis.findings if finding.status == "broke"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(content: bytes) -> None:
    survives(content)
    survives(b":W&B\xe1\xbe\x00" + content)
    survives(b"\x80\x04" + content)
    survives(b"SQLite format 3\x00" + content)


class Runs:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, (self.command,))


def test_a_pickle_that_would_run_a_command_does_not(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for protocol in range(6):
        content = pickle.dumps({"loss": [2.0, Runs(f"touch {mark}"), 1.0], "val_loss": [1.0, 2.0]}, protocol=protocol)
        survives(content)
    assert not mark.exists()


def test_a_pickle_of_numpy_numbers_is_read() -> None:
    import numpy as np

    run = load(Source.of(pickle.dumps({"loss": [np.float32(2.5), np.float64(1.5)]})))
    assert run.trainings[0].signals["loss"].values.tolist() == [2.5, 1.5]


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x04\x8e" + (2**60).to_bytes(8, "little"),  # a string of 2**60 bytes
        b"\x80\x04}r" + (2**31).to_bytes(4, "little") + b".",  # a memo of 2**31 places
        b"\x80\x04" + b"2" * 100_000 + b".",
        pickle.dumps({"loss": [1.0, 2.0]})[:-1] + b"\x85" * 50_000 + b".",
    ],
)
def test_a_pickle_that_would_fill_the_memory_does_not(bomb: bytes) -> None:
    survives(bomb)


def test_a_database_with_views_and_triggers_is_only_read(tmp_path: Path) -> None:
    content = database(
        "CREATE TABLE real (run_uuid TEXT, step INTEGER, timestamp INTEGER, key TEXT, value REAL)",
        "CREATE VIEW metrics AS SELECT load_extension('/tmp/evil.so'), 1 AS step, 'loss' AS key, 1.0 AS value FROM real",
        "INSERT INTO real VALUES ('r', 0, 0, 'loss', 1.0)",
    )
    survives(content)
    path = tmp_path / "made.db"
    path.write_bytes(content)
    with pytest.raises(LossdoctorError):
        load(Source(path))
    assert path.read_bytes() == content
    assert [item.name for item in tmp_path.iterdir()] == ["made.db"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_damaged_record_is_skipped_and_told(name: str) -> None:
    content = bytearray(SAMPLE[name].content)
    content[-10] ^= 0xFF
    run = load(Source.of(bytes(content)))
    assert any("damaged" in note for note in run.notes)
    assert len(run.trainings[0].signals["loss"]) >= 1


def test_deep_json_is_no_log() -> None:
    survives(b"[" * 100_000)
    survives(b'{"loss": ' * 50_000)


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "one-line"
    path.write_bytes(b"loss: 1.0 " + b"x" * 5_000_000)
    assert [len(line) <= 1 << 20 for line in Source(path).lines()] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_two_gigabytes_are_streamed(kind: str, tmp_path: Path) -> None:
    """Read within one gigabyte of memory."""
    path = tmp_path / "huge"
    if kind == "csv":
        rows = (b"%d,%.6f,%.8f\n" % (i, 2.0 / (1 + i * 1e-4), 1e-4) for i in range(20_000))
        path.write_bytes(b"step,loss,lr\n")
        with path.open("ab") as stream:
            block = b"".join(rows)
            while stream.tell() < 2 << 30:
                stream.write(block)
    else:
        sample = SAMPLE["tensorboard"].content
        with path.open("wb") as stream:
            while stream.tell() < 2 << 30:
                stream.write(sample * 2000)
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
from lossdoctor.readers import read
print(read({str(path)!r}).verdict)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-500:]
