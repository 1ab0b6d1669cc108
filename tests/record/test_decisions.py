"""Beside the script's own decisions it is counted how often the largest output is right."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import lossdoctor

DECISIONS = {
    "largest": lambda output: output.argmax(1),
    "probability": lambda output: output.softmax(1).max(1).indices,
    "over the batch": lambda output: output.softmax(0).argmax(1),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["compared", "numpy"])
@pytest.mark.parametrize("name", DECISIONS)
def test_a_softmax_over_the_batch_is_a_wrong_metric(tmp_path, name, leaves):
    torch.manual_seed(0)
    inputs = torch.randn(400, 8)
    labels = (inputs @ torch.randn(8, 4) + torch.tensor([2.0, 0.0, -1.0, 1.0])).argmax(1)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with lossdoctor.watch(model, optimizer, out=tmp_path) as doctor:
        for _ in range(12):
            for first in range(0, 300, 20):
                loss = functional.cross_entropy(model(inputs[first : first + 20]), labels[first : first + 20])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            hits = 0
            with torch.no_grad():
                for first in range(300, 400, 5):
                    output, wanted = model(inputs[first : first + 5]), labels[first : first + 5]
                    functional.cross_entropy(output, wanted)
                    decision = DECISIONS[name](output)
                    hits += (decision.numpy() == wanted.numpy()).sum() if leaves else (decision == wanted).sum()
    finding = doctor.diagnosis.finding("metric-wrong")
    assert finding.status == ("present" if name == "over the batch" else "absent")
