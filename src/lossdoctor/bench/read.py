"""What reading a log costs: against TensorBoard's own reader and against pandas, in one run on one machine.

Run it with `make bench-read`. The stock TensorBoard reader is installed into an environment of its own, in a temporary folder.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from lossdoctor.readers.parts.arrow import installed
from lossdoctor.readers.parts.crc import crc32c, masked

ROWS = 1_000_000
TAGS = ("train/loss", "train/lr", "train/grad_norm", "val/loss")
# Bars of the project: times the stock reader, times pandas with pyarrow installed and without, bytes.
TENSORBOARD, PANDAS_ARROW, PANDAS, MEMORY = 15.0, 4.0, 10.0, 500e6

_OURS = """
import json, resource, sys, time
from lossdoctor.readers import read
import pathlib, tempfile
with tempfile.TemporaryDirectory() as folder:  # what is imported on first use
    path = pathlib.Path(folder) / "log"
    path.write_text("step,loss\\n1,2.0\\n2,1.0\\n")
    read(path)
begun = time.process_time()
diagnosis = read(sys.argv[1])
seconds = time.process_time() - begun
print(json.dumps({"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "verdict": diagnosis.verdict}))
"""
_WITHOUT_ARROW = "import sys; sys.modules['pyarrow'] = None\n" + _OURS
_STOCK = """
import json, sys, time
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
begun = time.process_time()
read = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
count = sum(len(read.Scalars(tag)) for tag in read.Tags()["scalars"])
print(json.dumps({"seconds": time.process_time() - begun, "count": count}))
"""
_PANDAS = """
import json, sys, time
import pandas
begun = time.process_time()
frame = pandas.read_csv(sys.argv[1])
print(json.dumps({"seconds": time.process_time() - begun, "count": len(frame)}))
"""


@dataclass(frozen=True)
class Cost:
    """Hold what one reading took: seconds of the processor, which other work on the machine does not lengthen, and bytes at its peak.

    Example:
        >>> Cost(1.5, 2e8).seconds
        1.5
    """

    seconds: float
    memory: float = 0.0


def write_events(path: Path, rows: int = ROWS) -> None:
    """Write an event file of that many scalars: four tags in turn, a loss that falls."""
    chance = np.random.default_rng(0)
    steps = np.arange(rows) // len(TAGS)
    values = (3.0 * np.exp(-steps / rows * 20) + 0.5 + 0.05 * chance.normal(size=rows)).astype(np.float32)
    events = [
        _event(1.7e9 + i * 0.01, int(step), TAGS[i % len(TAGS)], float(value))
        for i, (step, value) in enumerate(zip(steps, values, strict=True))
    ]
    with path.open("wb") as stream:
        for at in range(0, rows, 100_000):
            stream.write(b"".join(_framed(events[at : at + 100_000])))


def _event(wall: float, step: int, tag: str, value: float) -> bytes:
    name = tag.encode()
    scalar = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    counted = b"\x10" + _varint(step) if step else b""
    return b"\x09" + struct.pack("<d", wall) + counted + b"\x2a" + bytes([len(summary)]) + summary


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _framed(events: list[bytes]) -> list[bytes]:
    """Put length and CRCs around each event; those of one length at once."""
    made = [b""] * len(events)
    lengths = np.array([len(event) for event in events])
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        head = struct.pack("<Q", length)
        head += masked(crc32c(np.frombuffer(head, dtype=np.uint8)[None])).tobytes()
        rows = np.frombuffer(b"".join(events[i] for i in chosen), dtype=np.uint8).reshape(-1, length)
        for i, crc in zip(chosen.tolist(), masked(crc32c(rows)), strict=True):
            made[i] = head + events[i] + struct.pack("<I", int(crc))
    return made


def write_csv(path: Path, rows: int = ROWS) -> None:
    """Write a CSV of that many rows and five columns, one of them sparse."""
    chance = np.random.default_rng(0)
    losses = 3.0 * np.exp(-np.arange(rows) / rows * 5) + 0.5 + 0.05 * chance.normal(size=rows)
    norms = np.abs(chance.normal(1.0, 0.2, size=rows))
    with path.open("w", encoding="ascii") as stream:
        stream.write("step,loss,lr,grad_norm,val_loss\n")
        stream.writelines(
            f"{i},{loss:.6f},{1e-3 * (1 - i / rows):.6e},{norm:.5f},{'' if i % 100 else f'{loss + 0.05:.5f}'}\n"
            for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
        )


def measure(code: str, path: Path, python: str = sys.executable, turns: int = 3) -> Cost:
    """Run a piece of code on a file in fresh processes; the quickest counts.

    Args:
        code: prints one line of JSON with `seconds` and perhaps `memory`.
        path: the file, its first argument.
        python: the interpreter.
        turns: processes.
    """
    told = []
    for _ in range(turns):
        done = subprocess.run(
            [python, "-c", code, str(path)], capture_output=True, text=True, check=True, env=dict(os.environ, OMP_NUM_THREADS="1")
        )
        told.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return Cost(min(each["seconds"] for each in told), max(each.get("memory", 0.0) for each in told))


def stock_python(folder: Path) -> str | None:
    """Install the stock TensorBoard reader into an environment of its own; None where it cannot be had."""
    import venv

    venv.create(folder / "stock", with_pip=True)
    python = str(folder / "stock" / "bin" / "python")
    click.echo("bench-read: installing tensorboard beside", err=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "tensorboard"], capture_output=True, text=True)
    return python if done.returncode == 0 else None


@click.command()
@click.option("--rows", default=ROWS, show_default=True, help="Scalars, and rows of the CSV.")
@click.option("--stock", metavar="PYTHON", help="Interpreter that has tensorboard; installed into a temporary one where left out.")
@click.option("--turns", default=3, show_default=True, help="Fresh processes for each figure; the quickest counts.")
def main(rows: int, stock: str | None, turns: int) -> None:
    """Compare our reading and diagnosing with the stock readers' reading."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        click.echo(f"bench-read: writing {rows:,} scalars and {rows:,} rows", err=True)
        write_events(folder / "events.out.tfevents.1", rows)
        write_csv(folder / "log.csv", rows)
        ours = measure(_OURS, folder / "events.out.tfevents.1", turns=turns)
        python = stock or stock_python(folder)
        if python is None:
            click.echo(f"TensorBoard file: {ours.seconds:.2f} s, {ours.memory / 1e6:.0f} MB; the stock reader could not be installed")
        else:
            theirs = measure(_STOCK, folder / "events.out.tfevents.1", python, turns=1)
            _tell("TensorBoard file", ours, theirs, f"at least {TENSORBOARD:g} times quicker", theirs.seconds / ours.seconds)
        theirs = measure(_PANDAS, folder / "log.csv", turns=turns)
        ways = {"without pyarrow": (_WITHOUT_ARROW, PANDAS)}
        if installed():
            ways["with pyarrow"] = (_OURS, PANDAS_ARROW)
        for name, (code, bar) in ways.items():
            ours = measure(code, folder / "log.csv", turns=turns)
            _tell(f"CSV {name}", ours, theirs, f"within {bar:g} times, in {MEMORY / 1e6:.0f} MB", ours.seconds / theirs.seconds)


def _tell(name: str, ours: Cost, theirs: Cost, bar: str, ratio: float) -> None:
    cost = f"read and diagnosed in {ours.seconds:.2f} s, {ours.memory / 1e6:.0f} MB"
    click.echo(f"{name}: {cost}; stock reading {theirs.seconds:.2f} s; ratio {ratio:.1f} ({bar})")


if __name__ == "__main__":
    main()
