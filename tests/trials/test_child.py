"""A script is repeated, treated, and ended early, without a trace outside its scratch folder."""

import json
import os
import socket
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from lossdoctor.core.store import load_run
from lossdoctor.launch.child import Repetition, repeat, way_of_isolation

SCRIPT = """
import pathlib, socket, sqlite3, sys, torch
here = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 4)
targets = inputs.sum(1, keepdim=True)
for epoch in range(40):
    torch.manual_seed(epoch)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        torch.save(model.state_dict(), here / "checkpoint.pt")
        with sqlite3.connect(here / "runs.db") as database:
            database.execute("insert into runs values (?)", (loss.item(),))
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=1).send(b"step")
        except ConnectionRefusedError:
            pass
print("done")
"""


@pytest.fixture
def recorded(tmp_path):
    """A script that harms, as it would be recorded, and the connections that reached its server."""
    world = tmp_path / "world"
    world.mkdir()
    (world / "train.py").write_text(SCRIPT)
    (world / "checkpoint.pt").write_bytes(b"old")
    with sqlite3.connect(world / "runs.db") as database:
        database.execute("create table runs (loss)")
    database.close()
    server = socket.create_server(("127.0.0.1", 0))
    reached = []
    threading.Thread(target=lambda: reached.append(server.accept()), daemon=True).start()
    run = tmp_path / "run"
    run.mkdir()
    arguments = ["train.py", str(world), str(server.getsockname()[1])]
    private = {"argv": arguments, "module": False, "cwd": str(world), "environ": dict(os.environ), "python": sys.executable}
    (run / "private.json").write_text(json.dumps(private))
    yield run, world, reached
    server.close()


def contents(folder: Path):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def again(recorded, tmp_path, treatments, way=None) -> Repetition:
    scratch = tmp_path / f"scratch{len(list(tmp_path.iterdir()))}"
    scratch.mkdir()
    return repeat(recorded[0], scratch, treatments, 60, way)


def losses(repetition: Repetition):
    return load_run(repetition.folder).trainings[0].series("loss").values


@pytest.mark.slow
@pytest.mark.skipif(way_of_isolation() != "namespaces", reason="namespaces are refused here")
def test_a_repetition_changes_nothing_and_gives_the_same_losses(recorded, tmp_path):
    before = contents(recorded[1])
    first, second = (again(recorded, tmp_path, []) for _ in range(2))
    assert contents(recorded[1]) == before
    assert not recorded[2]
    assert (first.way, first.refused, first.timed_out) == ("namespaces", "", False)
    assert len(losses(first)) == 40
    assert (losses(first) == losses(second)).all()


@pytest.mark.slow
@pytest.mark.skipif(way_of_isolation() != "namespaces", reason="namespaces are refused here")
def test_a_treatment_acts_and_the_end_comes_early(recorded, tmp_path):
    stop = {"name": "stop_after", "parameters": {"steps": 12}}
    plain = again(recorded, tmp_path, [stop])
    faster = again(recorded, tmp_path, [{"name": "scale_rate", "parameters": {"factor": 5.0}}, stop])
    assert len(losses(plain)) == len(losses(faster)) == 12
    assert losses(faster)[0] == losses(plain)[0]
    assert losses(faster)[-1] < 0.5 * losses(plain)[-1]


@pytest.mark.slow
def test_a_guarded_repetition_stops_at_the_first_write_and_names_it(recorded, tmp_path):
    before = contents(recorded[1])
    ended = again(recorded, tmp_path, [], way="guarded")
    assert contents(recorded[1]) == before
    assert not recorded[2]
    assert str(recorded[1] / "checkpoint.pt") in ended.refused
