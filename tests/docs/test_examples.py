"""The examples in docstrings and documents run and show what they say."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks

import lossdoctor

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # also where the project is not installed
# Recipes stand for users' scripts: importing one trains it.
MODULES = [found.name for found in pkgutil.walk_packages(lossdoctor.__path__, "lossdoctor.") if ".recipes" not in found.name]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_in_docstrings_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS, verbose=False)
    assert found.failed == 0


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "README.md", "python"))))
def test_python_in_the_readme_runs(number: int, tmp_path: Path) -> None:
    block = blocks(ROOT / "README.md", "python")[number]
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_diagnosis_in_the_readme_is_what_a_run_of_the_example_says(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lossdoctor", "run", "--out", str(tmp_path), "train.py"]
    done = subprocess.run(command, cwd=ROOT / "docs" / "example", env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    shown = next(block for block in blocks(ROOT / "README.md", "text") if "lossdoctor: " in block)
    for label in ("lossdoctor: ", "  fault ", "  where ", "  fix ", "  machine "):
        assert line(label, shown) == line(label, done.stderr)


def line(label: str, report: str) -> str:
    """Return a labelled line of a report without its figures, which differ from run to run."""
    found = next(each for each in report.splitlines() if each.startswith(label))
    return found.split(" (")[0].strip()
