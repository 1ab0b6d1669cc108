"""Calibration: tables that rise, and strengths that become probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossdoctor.core.fault import faults
from lossdoctor.diagnose import confidence


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calibration.json"
    confidence.write({"known": [[0.0, 0.02], [0.5, 0.4], [1.0, 0.96]]}, path)
    read = confidence.tables(path)
    monkeypatch.setattr(confidence, "tables", lambda: read)
    return path


@pytest.mark.usefixtures("stored")
def test_probability_is_interpolated_and_clipped() -> None:
    assert confidence.probability("known", 0.25) == pytest.approx(0.21)
    assert confidence.probability("known", 7.0) == pytest.approx(0.96)
    assert confidence.probability("known", float("nan")) == pytest.approx(0.02)


@pytest.mark.usefixtures("stored")
def test_a_fault_without_table_is_preview_and_keeps_its_strength() -> None:
    assert confidence.probability("unknown", 0.85) == 0.85
    assert confidence.maturity("unknown") == "preview"
    assert confidence.maturity("known") == "stable"


def test_a_missing_or_foreign_file_gives_no_tables(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"format": 99, "tables": {"known": [[0, 1]]}}')
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert [dict(confidence.tables(path)) for path in (tmp_path / "none.json", foreign, broken)] == [{}, {}, {}]


@settings(deadline=None)  # the first example imports scikit-learn
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=60))
def test_fitted_tables_rise_and_stay_below_certainty(pairs: list[tuple[float, bool]]) -> None:
    table = np.array(confidence.calibrate([("x", *pair) for pair in [*pairs, (0.0, False), (1.0, True)]])["x"])
    assert (np.diff(table[:, 0]) >= 0).all()
    assert (np.diff(table[:, 1]) >= 0).all()
    assert (table[:, 1] > 0).all()
    assert (table[:, 1] < 1).all()


def test_what_was_never_planted_or_never_spared_gets_no_table() -> None:
    assert confidence.calibrate([("x", 1.0, True)] * 9 + [("y", 0.0, False)] * 9) == {}


def test_false_alarms_lower_the_probability() -> None:
    clean = [("x", 1.0, True)] * 20 + [("x", 0.0, False)] * 20
    alarms = [("x", 1.0, False)] * 10
    assert confidence.calibrate(clean)["x"][-1][1] > 0.9
    assert confidence.calibrate(clean + alarms)["x"][-1][1] < 0.7


def test_the_shipped_tables_are_of_known_faults_and_rise() -> None:
    for slug, table in confidence.tables().items():
        assert slug in faults()
        assert table == sorted(table)
        assert all(0 < probability < 1 for _, probability in table)
