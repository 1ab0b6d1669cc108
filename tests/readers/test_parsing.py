"""The quick ways of parsing against slow and obvious ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossdoctor.readers.parts.crc import crc32c as quick_crc
from lossdoctor.readers.parts.crc import masked as quick_masked
from lossdoctor.readers.parts.decimals import padded, parse_column
from lossdoctor.readers.parts.events import EventFile
from lossdoctor.readers.parts.load import load
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Column
from tests.readers import samples

FORMATS = ("{:.6f}", "{:.4g}", "{:.6e}", "{:.0f}", "{:+.3f}", "{:.12g}")


def quick(texts: list[str]) -> list[float] | None:
    content = (",".join(texts) + ",").encode()
    ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord(","))
    found = parse_column(padded(content), np.concatenate([[0], ends[:-1] + 1]), ends)
    return None if found is None else found.tolist()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.sampled_from(FORMATS)), min_size=1, max_size=20))
def test_decimals_are_those_that_float_reads(drawn: list[tuple[float, str]]) -> None:
    texts = [form.format(value) for value, form in drawn]
    found = quick(texts)
    assert found is None or found == [float(text) for text in texts]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.+-e", min_size=1, max_size=8))
def test_what_is_no_decimal_is_refused(text: str) -> None:
    try:
        expected = [float(text)]
    except ValueError:
        assert quick([text]) is None
    else:
        assert quick([text]) in (None, expected)


@pytest.mark.parametrize("text", ["1-2", "nan", "1..2", "--1", "e5", "1e", "-", ".", "2021-01-01", "1,2"])
def test_known_texts_that_are_no_decimals(text: str) -> None:
    assert text == "1,2" or quick([text, "1.5"]) is None


@given(st.binary(min_size=1, max_size=40))
def test_crc_is_that_of_the_bits(content: bytes) -> None:
    found = quick_crc(np.frombuffer(content, dtype=np.uint8)[None])
    assert int(found[0]) == samples.crc32c(content)
    assert struct.pack("<I", int(quick_masked(found)[0])) == samples.masked(content)


tags = st.sampled_from(["loss", "val/loss", "a", "accuracy_of_the_train_split", "lr"])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**40), st.dictionaries(tags, st.floats(width=32, allow_nan=False), min_size=1, max_size=3), st.booleans()
        ),
        max_size=40,
    )
)
def test_events_are_those_that_were_written(events: list[tuple[int, dict[str, float], bool]]) -> None:
    content = samples.tf_file([samples.tf_event(float(i), step, scalars, tensor) for i, (step, scalars, tensor) in enumerate(events)])
    found = sorted(
        (int(record), part.tag, int(step), value)
        for part in EventFile(content).scalars()
        for record, step, value in zip(part.records, part.steps, part.values.tolist(), strict=True)
    )
    expected = sorted((i + 1, tag, step, value) for i, (step, scalars, _) in enumerate(events) for tag, value in scalars.items())
    assert found == expected


def test_events_that_take_turns_for_long() -> None:
    content = samples.tf_file([samples.tf_event(float(i), i // 3, {("loss", "lr", "val/loss")[i % 3]: float(i)}) for i in range(2000)])
    values = {
        tag: np.concatenate([part.values for part in EventFile(content).scalars() if part.tag == tag]) for tag in ("loss", "lr", "val/loss")
    }
    assert {tag: sorted(held.tolist()) for tag, held in values.items()} == {
        tag: [float(i) for i in range(start, 2000, 3)] for start, tag in enumerate(values)
    }


def test_reading_goes_on_behind_a_damaged_length() -> None:
    whole = [samples.tf_event(float(i), i, {"loss": float(i)}) for i in range(50)]
    damaged = whole[20][:2] + b"\xff" + whole[20][3:]
    events = EventFile(samples.tf_file([*whole[:20], damaged, *whole[21:]]))
    values = sorted(value for part in events.scalars() for value in part.values.tolist())
    assert values == [float(i) for i in range(50) if i != 20]
    assert events.damaged == 1


def test_a_csv_of_several_blocks_is_that_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    from lossdoctor.readers.parts import delimited

    chance = np.random.default_rng(0)
    losses, held_out = chance.normal(size=3000).round(6), chance.normal(size=3000).round(5)
    lines = [f"{i},{loss},{'' if i % 7 else held}" for i, (loss, held) in enumerate(zip(losses.tolist(), held_out.tolist(), strict=True))]
    monkeypatch.setattr(delimited, "BLOCK", 1000)
    training = load(Source.of(("step,loss,val_loss\n" + "\n".join(lines) + "\n").encode())).trainings[0]
    assert training.signals["loss"].values.tolist() == losses.tolist()
    assert [row["loss"] for row in training.rows["validation"]] == held_out[::7].tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(4, 50))
def test_a_shortened_column_keeps_its_extremes(values: list[float], longest: int) -> None:
    column = Column.of(values).thinned(longest)
    assert len(column) <= max(longest, 4)
    assert (column.values.min(), column.values.max()) == (min(values), max(values))
    assert np.all(np.diff(column.rows) > 0)


def test_a_shortened_column_keeps_what_is_not_finite() -> None:
    column = Column.of([1.0] * 50 + [float("nan")] + [1.0] * 49).thinned(20)
    assert np.isnan(column.values).any()
