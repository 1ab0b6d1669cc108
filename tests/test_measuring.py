"""`lossdoctor machine` on real scripts: what it answers, and that nothing of the script's work remains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.launch.child import way_of_isolation

WIDE = """
import torch
from torch import nn
torch.manual_seed(0)
inputs = torch.randn(512, 512)
targets = torch.tanh(inputs @ torch.randn(512, 16) / 20)
held_inputs = torch.randn(128, 512)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for step in range(100000):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("left.txt", "w").write("it came to its end")
"""

SMALL = """
import torch
from torch import nn
torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = inputs[:, :2].argmax(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(400):
    rows = torch.randint(0, 256, (16,))
    loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("left.txt", "w").write("it came to its end")
"""


def asked(folder: Path, source: str, *options: str) -> dict[str, Any]:
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "lossdoctor", "machine", "-q", "--json", "report.json", *options, "train.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=200)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.skipif(way_of_isolation() != "namespaces", reason="namespaces are refused here")
def test_wide_layers_keep_the_device_busy_and_small_ones_do_not(tmp_path: Path) -> None:
    wide = asked(tmp_path, WIDE, "--seconds", "5")
    assert wide["bigger_machine"]["helps"] in ("yes", "speed-only"), wide["bigger_machine"]
    assert max(row["factor"] for row in wide["vitals"]["machine"]["devices"]) > 3
    small = asked(tmp_path, SMALL)
    assert small["bigger_machine"]["helps"] == "no", small["bigger_machine"]
    for report in (wide, small):
        assert {each["name"] for each in report["experiments"]} == {"throughput", "memorise", "memory"}
        assert report["vitals"]["machine"]["devices"]
    assert not (tmp_path / "left.txt").exists()


@pytest.mark.slow
def test_a_script_that_trains_nothing_is_told_with_its_last_words(tmp_path: Path) -> None:
    report = asked(tmp_path, "raise SystemExit('no data here')")
    assert report["verdict"]["slug"] == "undetermined"
    assert any("no data here" in note for note in report["notes"])


P_26 = Path(__file__).parents[2] / "shared" / "cases" / "P-26-base3-sums" / "broken.py"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not P_26.is_file(), reason="the cases are not beside the project")
@pytest.mark.skipif(way_of_isolation() != "namespaces", reason="namespaces are refused here")
def test_a_transformer_that_was_cut_short_would_get_further_on_a_faster_device(tmp_path: Path) -> None:
    report = asked(tmp_path, P_26.read_text(), "--seconds", "10")
    assert report["bigger_machine"]["helps"] in ("yes", "speed-only"), report["bigger_machine"]
    assert "times as fast" in report["bigger_machine"]["why"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread queues for a core")
def test_beside_a_busy_loop_on_each_core_the_answer_stays_and_the_report_says_so(tmp_path: Path) -> None:
    loop = "import time\nuntil = time.time() + 240\nwhile time.time() < until: pass"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        report = asked(tmp_path, SMALL, "--seconds", "20")
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert report["bigger_machine"]["helps"] == "no", report["bigger_machine"]
    assert report["vitals"]["queued_share"] > 0.25
