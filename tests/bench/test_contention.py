"""On a machine whose cores are all busy with other work the verdict is the same, and the report says that the machine was busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.bench.conditions import condition
from lossdoctor.bench.edit import find_recipe

EPOCHS = 6
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this system does not tell the time spent queueing"),
]


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep each core that this process may use busy with a loop."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def watched(folder: Path, source: str) -> tuple[dict[str, Any], str]:
    """Run a script by the command; return its report as JSON and as it is printed."""
    folder.mkdir()
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "lossdoctor", "run", "--workup", "none", "--json", "report.json", "--out", "runs", "train.py"]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text()), " ".join(done.stderr.split())


@pytest.mark.parametrize("planted", ["healthy", "input-bottleneck"])
def test_the_verdict_stays_and_the_report_says_that_the_machine_was_busy(planted: str, tmp_path: Path) -> None:
    recipe = find_recipe("digits").with_constant("EPOCHS", EPOCHS)
    plant = condition(planted).plant_for(recipe, "mild")
    source = (recipe.planted(plant) if plant else recipe).source
    alone, _ = watched(tmp_path / "alone", source)
    with busy_cores():
        beside, told = watched(tmp_path / "beside", source)
    assert alone["verdict"]["slug"] == beside["verdict"]["slug"] == planted
    assert beside["vitals"]["queued_share"] > 0.25
    assert "the machine was busy with other work" in told
