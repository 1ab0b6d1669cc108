"""The settings of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossdoctor.core.config import Settings, load_settings, parse_budget, parse_codes
from lossdoctor.core.errors import UsageError


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    written(tmp_path, "[project]\nname = 'x'\n")
    assert load_settings(tmp_path) == Settings()


def test_every_key_is_read(tmp_path: Path) -> None:
    written(
        tmp_path,
        "[tool.lossdoctor]\nout = 'runs'\njson = 'report.json'\nhtml = 'report.html'\n"
        "quiet = true\nselect = ['LOP', 'lr-too-high']\nignore = 'NUM001, NUM002'\n"
        "fail-on = 'warning'\nmax-steps = 500\nbudget = '0.5%'\nworkup = 'none'\n",
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load_settings(below) == Settings(
        out=tmp_path / "runs",
        json=str(tmp_path / "report.json"),
        html=str(tmp_path / "report.html"),
        quiet=True,
        select=("LOP", "lr-too-high"),
        ignore=("NUM001", "NUM002"),
        fail_on="warning",
        max_steps=500,
        budget=0.005,
        workup="none",
    )


def test_the_nearest_file_alone_counts(tmp_path: Path) -> None:
    written(tmp_path, "[tool.lossdoctor]\nquiet = true\n")
    below = tmp_path / "inner"
    below.mkdir()
    written(below, "[tool.other]\nx = 1\n")
    assert load_settings(below) == Settings()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fail_on = 'error'", ["fail_on", "did you mean 'fail-on'?"]),
        ("budgte = '1%'", ["budgte", "did you mean 'budget'?"]),
        ("zzz = 1", ["zzz", "workup"]),
        ("quiet = 'yes'", ["quiet", "'yes'", "true or false"]),
        ("quiet = 1", ["quiet", "true or false"]),
        ("max-steps = true", ["max-steps", "whole number"]),
        ("max-steps = 0", ["max-steps", "at least 1"]),
        ("max-steps = 2.5", ["max-steps", "whole number"]),
        ("budget = 'much'", ["budget", "'much'", "1%"]),
        ("budget = '200%'", ["budget", "at most 100%"]),
        ("budget = true", ["budget", "True"]),
        ("select = [1]", ["select", "LOP001"]),
        ("out = 3", ["out", "path"]),
        ("out = ''", ["out", "path"]),
        ("fail-on = 'errors'", ["fail-on", "error, warning, never"]),
        ("workup = ['auto']", ["workup", "auto, none, full"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, words: list[str]) -> None:
    written(tmp_path, f"[tool.lossdoctor]\n{line}\n")
    with pytest.raises(UsageError) as caught:
        load_settings(tmp_path)
    for word in [str(tmp_path / "pyproject.toml"), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["[tool.lossdoctor\nquiet = true", "[tool]\nlossdoctor = 3", "tool = 'lossdoctor'", "\ufeff\x00 lossdoctor", "[[tool.lossdoctor]]"],
)
def test_a_file_that_is_no_table_of_settings(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        load_settings(tmp_path)


def test_a_broken_file_that_is_not_about_us_is_not_our_matter(tmp_path: Path) -> None:
    written(tmp_path, "[tool.black\n")
    assert load_settings(tmp_path) == Settings()


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.lossdoctor]\nout = '\xe9'\n")
    with pytest.raises(UsageError, match="not valid"):
        load_settings(tmp_path)


@pytest.mark.parametrize(("typed", "share"), [("1%", 0.01), (" 0.5 % ", 0.005), ("100%", 1.0), ("0.02", 0.02), (0.03, 0.03)])
def test_budgets(typed: object, share: float) -> None:
    assert parse_budget(typed) == pytest.approx(share)


@pytest.mark.parametrize("typed", ["", "%", "0", "-1%", "101%", "1", 1, 3, "nan", "nan%", "inf%", "1%%", None, [1]])
def test_no_budgets(typed: object) -> None:
    with pytest.raises(ValueError, match="share of a step"):
        parse_budget(typed)


def test_codes() -> None:
    assert parse_codes("LOP001,,lr-too-high , ") == ("LOP001", "lr-too-high")
    assert parse_codes(["A", " B "]) == ("A", "B")
    assert parse_codes("") == ()
    with pytest.raises(ValueError, match="expected codes"):
        parse_codes(3)
