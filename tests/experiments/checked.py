"""Small unchanged scripts, checked in this process: watched to their end, then worked up and diagnosed."""

import contextlib
import io
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import torch

SLOW = ("rate", "unseen", "accumulation", "precision", "memory", "rate_range")  # they decide none of these faults
PARTS = {
    "data": """
inputs = torch.randn(600, 12)
labels = torch.stack([(inputs[:, :6] ** 2).sum(1), (inputs[:, 6:] ** 2).sum(1), 5 + inputs[:, 0] * 2]).argmax(0)
""",
    "model": "model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))",
    "loss": "loss = nn.functional.cross_entropy(model(x), y)",
    "optimizer": "optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)",
    "loader": """
data = torch.utils.data.TensorDataset(inputs, labels)
loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
""",
    "loop": """
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        LOSS
        loss.backward()
        optimizer.step()
    VALIDATE
""",
    "validate": "pass",
}


def script(**changes):
    """Return a small training script with some of its parts exchanged."""
    parts = PARTS | changes
    loop = (
        parts["loop"]
        .replace("LOSS", parts["loss"].replace("\n", "\n        "))
        .replace("VALIDATE", parts["validate"].replace("\n", "\n    "))
    )
    head = "import torch\nimport numpy as np\nfrom torch import nn\ntorch.manual_seed(0)\n"
    return head + "\n".join([parts["data"], parts["model"], parts["loader"], parts["optimizer"], loop])


def checked(source, seconds=30.0, select=()):
    """Watch a script in this process, do the experiments of a check, and diagnose it."""
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose import diagnose
    from lossdoctor.diagnose.plan import CHECKS, parameters
    from lossdoctor.experiments.replay import untouched
    from lossdoctor.experiments.workup import Workup
    from lossdoctor.record import arm

    random.seed(0)
    np.random.seed(0)
    with tempfile.TemporaryDirectory() as folder, untouched():
        path = Path(folder) / "train.py"
        path.write_text(source)
        recorder = arm(Path(folder) / "runs", script="train.py")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
        finally:
            recorder.stop("returned", 0)
        work, asked = Workup(recorder.captures, recorder.folder), parameters(load_run(recorder.folder).trainings[0])
        lines = [work.answer({"experiment": name, "seconds": seconds, "parameters": asked}) for name in CHECKS if name not in SLOW]
        (recorder.folder / "record-workup-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = load_run(recorder.folder)
    return diagnose(run, mode="check", select=select)


def told(diagnosis):
    """Return the slugs of what is present above advice."""
    return [finding.slug for finding in diagnosis.findings if finding.status == "present" and finding.severity != "advice"]


__all__ = ["checked", "script", "told", "torch"]
