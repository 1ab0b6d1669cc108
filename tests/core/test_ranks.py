"""The records of a distributed training's ranks are joined, and what only all of them show is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lossdoctor.core.store import load_run
from lossdoctor.diagnose import diagnose
from lossdoctor.record.thinning import pack


def write(out: Path, rank: int, own: float, rows: int, job: str = "a", started: str = "2026-01-01T00:00:00+00:00", steps: int = 60) -> Path:
    """Write the folder of a rank whose steps of a tenth of a second take so long before the ranks meet."""
    folder = out / f"run-{job}-{rank}"
    folder.mkdir(parents=True)
    head = {"format": 1, "script": "train.py", "started": started, "rank": rank, "world_size": 2, "job": job}
    (folder / "run.json").write_text(json.dumps(head))
    columns = {
        name: np.full(steps, value)
        for name, value in (("gap_seconds", own / 2), ("forward_seconds", own / 2), ("backward_value", 1.0), ("backwards", 1.0))
    }
    columns |= {"step": np.arange(steps, dtype=float), "wall": 0.1 * np.arange(steps)}
    lines: list[dict[str, Any]] = [{"kind": "track", "track": 0, "what": "optimizer", "began": 0.0, "parameters": []}]
    lines.append({"kind": "steps", "track": 0, "columns": {name: pack(values) for name, values in columns.items()}})
    for step in range(6):
        hashes = [f"{1000 * step + rows + i:016x}" for i in range(8)]
        lines.append(
            {"kind": "sample", "track": 0, "step": step, "signal": "row_hashes", "fields": {"hashes": hashes, "target_hashes": None}}
        )
    (folder / "record-1-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def said(folder: Path) -> dict[str, str]:
    diagnosis = diagnose(load_run(folder), select=("DST",))
    assert "ranks" not in diagnosis.run
    return {finding.slug: finding.status for finding in diagnosis.findings}


def test_a_slow_rank_and_shared_rows_are_seen_from_either_side(tmp_path: Path) -> None:
    folders = [write(tmp_path, 0, 0.07, 0), write(tmp_path, 1, 0.03, 0)]
    for folder in folders:
        assert said(folder) == {"sampler-not-distributed": "present", "rank-straggler": "present"}


def test_ranks_that_share_the_work_are_left_alone(tmp_path: Path) -> None:
    folders = [write(tmp_path, 0, 0.03, 0), write(tmp_path, 1, 0.03, 500)]
    assert said(folders[0]) == {"sampler-not-distributed": "absent", "rank-straggler": "absent"}


def test_a_run_of_its_own_is_no_rank(tmp_path: Path) -> None:
    folder = write(tmp_path, 0, 0.03, 0)
    write(tmp_path, 1, 0.03, 0, job="another")
    assert set(said(folder).values()) == {"unknown"}


def test_an_earlier_job_on_the_same_port_is_another(tmp_path: Path) -> None:
    folder = write(tmp_path, 0, 0.03, 0)
    (write(tmp_path / "x", 1, 0.03, 0, started="2026-01-01T01:00:00+00:00")).rename(tmp_path / "later")
    assert set(said(folder).values()) == {"unknown"}


SCRIPT = """
import os, time
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    if dist.get_rank() == 1:
        time.sleep(0.05)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_real_ranks_are_watched_and_joined(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lossdoctor", "run", "--quiet", "--workup", "none", "--out", "runs", "train.py"]
    ranks = [subprocess.Popen(command, cwd=tmp_path, env=os.environ | address | {"RANK": str(rank)}) for rank in range(2)]
    assert [rank.wait(180) for rank in ranks] == [0, 0]
    folders = [path.parent for path in (tmp_path / "runs").glob("*/run.json")]
    assert len(folders) == 2
    assert said(folders[0]) == {"sampler-not-distributed": "present", "rank-straggler": "present"}
