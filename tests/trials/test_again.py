"""Before a run is repeated: its script must be there, and a changed one is told."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.trials.again import check_script

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of `train.py`, which was written an hour before."""
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    os.utime(script, (BEGAN.timestamp() - 3600,) * 2)
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"started": BEGAN.isoformat()}))
    (run / "private.json").write_text(json.dumps({"argv": ["train.py"], "cwd": str(tmp_path), "module": False}))
    return run


def said(folder: Path) -> list[str]:
    heard: list[str] = []
    check_script(folder, heard.append)
    return heard


def test_an_unchanged_script_is_run_again_without_a_word(folder: Path) -> None:
    assert said(folder) == []


def test_a_changed_script_is_told(folder: Path) -> None:
    (folder.parent / "train.py").write_text("print(2)\n")
    assert ["has changed since it was watched" in words for words in said(folder)] == [True]


def test_a_script_that_is_gone_is_an_error(folder: Path) -> None:
    (folder.parent / "train.py").unlink()
    with pytest.raises(LossdoctorError, match=r"train\.py is gone"):
        said(folder)


def test_a_module_is_found_by_the_interpreter(folder: Path) -> None:
    (folder / "private.json").write_text(json.dumps({"argv": ["package.train"], "cwd": str(folder), "module": True}))
    assert said(folder) == []


@pytest.mark.parametrize("text", [None, "{", "{}", '{"argv": [], "cwd": "."}'])
def test_a_run_that_does_not_tell_how_it_began_is_an_error(folder: Path, text: str | None) -> None:
    (folder / "private.json").unlink()
    if text is not None:
        (folder / "private.json").write_text(text)
    with pytest.raises(LossdoctorError, match=r"run it again|run the script again"):
        said(folder)
