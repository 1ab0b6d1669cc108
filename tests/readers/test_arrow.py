"""Blocks parsed with pyarrow hold what the patient way reads, line by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossdoctor.readers import csv
from lossdoctor.readers.parts import delimited
from lossdoctor.readers.parts.load import load
from lossdoctor.readers.parts.source import Source

pytest.importorskip("pyarrow")

FIELDS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["", "", "nan", "NaN", "inf", "-inf", "null", "None", "-", "1e", "0x1f", "1_000", ' "2"', " 3 ", "+4", "1.5e-7", "true"]
    ),
)


def columns(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Read a file and return the columns of its one table as plain lists."""
    (table,) = csv.read(Source(path))
    return {name: (column.rows.tolist(), np.nan_to_num(column.values, nan=-7.5).tolist()) for name, column in table.columns.items()}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=12))
def test_any_fields_are_read_as_the_patient_way_reads_them(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]) -> None:
    path = tmp_path_factory.mktemp("arrow") / "log.csv"
    first = "0,1.0,2.0\n1,1.0,2.0\n"  # the layout is found by these
    path.write_text("step,loss,lr\n" + first + "".join(",".join(row) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "WORTH_BYTES", 0)
        quick = columns(path)
        patch.setattr(delimited, "_with_arrow", lambda *args: None)
        patient = columns(path)
    assert quick == patient


@pytest.mark.parametrize("text", ["1,2\n3\n", "1,2,3\n4,5,6,7\n", "1,2\n\n3,4\n", '1,"2"\n', "1,two\n", "\n"])
def test_a_block_that_is_no_table_of_numbers_is_refused(text: str) -> None:
    assert delimited._with_arrow(text.encode(), ",", 2) is None


def test_empty_fields_are_gaps(tmp_path: Path) -> None:
    values, empty = delimited._with_arrow(b"1,\n,4\n", ",", 2) or pytest.fail("not parsed")
    assert values[[0, 1], [0, 1]].tolist() == [1.0, 4.0]
    assert empty.tolist() == [[False, True], [True, False]]


def test_a_long_file_is_the_same_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    path = tmp_path / "log.csv"
    with path.open("w") as stream:
        stream.write("step;loss;val_loss\n")
        stream.writelines(f"{i};{loss!r};{'' if i % 10 else loss + 0.1}\n" for i, loss in enumerate(chance.normal(size=200_000).tolist()))
    quick = load(Source(path))
    monkeypatch.setattr(delimited, "installed", lambda: False)
    own = load(Source(path))
    for left, right in zip(quick.trainings, own.trainings, strict=True):
        for name, series in left.signals.items():
            assert np.array_equal(series.values, right.signals[name].values, equal_nan=True)
