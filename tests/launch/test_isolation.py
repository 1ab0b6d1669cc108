"""A script that is repeated changes nothing outside its scratch folder and connects to nothing."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from lossdoctor.launch.isolation import can_enter_namespaces

HARM = """
import os, pathlib, socket, sqlite3, subprocess, sys
outside, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])

def attempt(what):
    try:
        what()
    except OSError as error:
        print(type(error).__name__)

attempt(lambda: (outside / "checkpoint.pt").write_text("new"))
attempt(lambda: (outside / "kept.txt").write_text("changed"))
attempt(lambda: (outside / "gone.txt").unlink())
attempt(lambda: os.rename(outside / "kept.txt", outside / "moved.txt"))
def append():
    with sqlite3.connect(outside / "runs.db") as database:
        database.execute("insert into runs values (2)")
attempt(append)
attempt(lambda: subprocess.run(["touch", str(outside / "touched")], check=True))
attempt(lambda: socket.create_connection(("127.0.0.1", port), timeout=2))
(pathlib.Path(sys.argv[3]) / "record").write_text("kept")
"""


@pytest.fixture
def world(tmp_path):
    """A folder with files and a database, a listening server, and what they look like now."""
    outside = tmp_path / "outside"
    keep = tmp_path / "scratch"
    outside.mkdir()
    keep.mkdir()
    (outside / "kept.txt").write_text("old")
    (outside / "gone.txt").write_text("old")
    with sqlite3.connect(outside / "runs.db") as database:
        database.execute("create table runs (id)")
        database.execute("insert into runs values (1)")
    database.close()
    reached = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(10)

    def listen():
        with contextlib.suppress(OSError):
            reached.append(server.accept())

    threading.Thread(target=listen, daemon=True).start()
    yield outside, keep, server.getsockname()[1], reached
    server.close()


def contents(folder: Path):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(entry: str, outside: Path, keep: Path, port: int, harm: str = HARM):
    code = f"import sys, pathlib\nfrom lossdoctor.launch import guard, isolation\n{entry}\n" + textwrap.dedent(harm)
    return subprocess.run([sys.executable, "-c", code, str(outside), str(port), str(keep)], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(bool(can_enter_namespaces()), reason="namespaces are refused here")
def test_in_namespaces_the_script_writes_freely_and_nothing_remains(world):
    outside, keep, port, reached = world
    before = contents(outside)
    done = run("isolation.enter_namespaces(pathlib.Path(sys.argv[3]))", outside, keep, port)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ConnectionRefusedError"], "only the connection may fail"
    assert contents(outside) == before
    assert (keep / "record").read_text() == "kept"
    assert not reached


@pytest.mark.skipif(bool(can_enter_namespaces()), reason="namespaces are refused here")
def test_the_end_of_the_script_is_passed_on_and_takes_its_children_along(world):
    outside, keep, port, _ = world
    harm = """
    import os, subprocess
    child = subprocess.Popen(["sleep", "60"])
    os._exit(7)
    """
    done = run("isolation.enter_namespaces(pathlib.Path(sys.argv[3]))", outside, keep, port, harm)
    assert done.returncode == 7  # and the call returned at once: the pipe that the child inherited is closed


def test_guarded_writes_outside_are_refused_and_named(world):
    outside, keep, port, reached = world
    before = contents(outside)
    done = run("guard.guard(pathlib.Path(sys.argv[3]))", outside, keep, port)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"NotIsolated"}
    assert len(done.stdout.split()) == 7
    assert contents(outside) == before
    assert (keep / "record").read_text() == "kept"
    assert not reached


def test_guarded_refusal_names_the_path(world):
    outside, keep, port, _ = world
    done = run("guard.guard(pathlib.Path(sys.argv[3]))", outside, keep, port, "open(sys.argv[1] + '/kept.txt', 'w')")
    assert done.returncode == 1
    assert os.path.join(outside, "kept.txt") in done.stderr.splitlines()[-1]
