"""Measure what watching costs a run: `python -m lossdoctor.bench.overhead` (or `make bench-overhead`).

Steps. A process trains a small network. The patches are taken out and put back in alternating blocks of 100 steps, the order
within each pair drawn at random; the figure is the CPU time of all watched blocks over that of all others, with a 95 % interval
by bootstrap over the pairs. One process differs from the next by more than that interval tells (where its memory lies decides which
lines of the caches meet), so several are run and pooled, and their interval is Student's over the processes. CPU time, since others
may use the machine; neighbouring blocks, since its speed drifts. The budget's clock stands still while the patches are out. The first
steps, which are measured fully, belong to the start and not to this figure.

Start and end. A short script runs alternately under `python` and under `lossdoctor run` and tells the wall time at which it had
imported torch, done 30 steps, and reached its last line. The differences of the medians are what the start costs; from the last
line to the end of the command is how long the report takes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.record.recorder import Recorder

BLOCK = 100
# Loss, zero_grad, backward and Adam's step of a perceptron; width and rows give about 1 ms and 15 ms on one core of 2024.
SIZES = {"1 ms": (256, 64), "15 ms": (512, 600)}
PAIRS = {"1 ms": 40, "15 ms": 20}  # of one process; on a shared machine one pair scatters by a tenth
PROCESSES = 10  # one process scatters by 0.025 about the mean: so many narrow the interval to about 2 %
SCRIPT = """
import time
import torch
imported = time.time()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(640, 64), torch.randint(0, 10, (640,))
for step in range(300):
    loss = torch.nn.functional.cross_entropy(model(x[step % 10 :: 10]), y[step % 10 :: 10])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 29:
        stepped = time.time()
print(imported, stepped, time.time())
"""


@dataclass(frozen=True)
class Ratio:
    """Hold the CPU time of watched blocks over that of the others.

    Args:
        step_seconds: CPU time of a step that nobody watches.
        ratio: total over total.
        low: lower end of the 95 % interval.
        high: upper end.
        pairs: pairs of blocks, over all processes.
        processes: processes that they come from.

    Example:
        >>> str(Ratio(0.001, 1.031, 1.02, 1.042, 60))
        '1.031 (1.020 to 1.042) at 1.00 ms a step, 60 pairs of 100 steps'
    """

    step_seconds: float
    ratio: float
    low: float
    high: float
    pairs: int
    processes: int = 1

    def __str__(self) -> str:
        figures = f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{figures} at {1000 * self.step_seconds:.2f} ms a step, {self.pairs} pairs of {BLOCK} steps{processes}"


class Switch:
    """Take the patches of a recorder out and put them back, its budget's clock standing still meanwhile."""

    def __init__(self, recorder: Recorder) -> None:
        assert recorder._seams is not None
        assert recorder._observer is not None
        self.seams, self.observer = recorder._seams, recorder._observer
        self.out = 0.0
        self.since = 0.0
        self.observer.budget.clock = lambda: time.thread_time() - self.out

    def off(self) -> None:
        """Take the patches out."""
        self.seams.undo()
        self.since = time.thread_time()

    def on(self) -> None:
        """Put the patches back."""
        self.out += time.thread_time() - self.since
        self.observer.off = False
        self.seams.install()


def measure_steps(width: int, rows: int, pairs: int, out: Path) -> Ratio:
    """Measure the ratio for one size of network.

    Args:
        width: units of each of the two hidden layers.
        rows: rows of a batch.
        pairs: pairs of blocks; half of them begin watched.
        out: folder for the record.
    """
    from lossdoctor.record import arm

    step = trainer(width, rows)
    recorder = arm(out, script="overhead")
    try:
        switch = Switch(recorder)
        for _ in range(2 * BLOCK):  # the first steps are measured fully
            step()
        watched, plain = _blocks(step, switch, pairs)
    finally:
        recorder.stop()
    return ratio(watched, plain)


def trainer(width: int, rows: int) -> Callable[[], None]:
    """Build a network with random data and return what does one step."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs, targets = torch.randn(20, rows, 64), torch.randint(0, 10, (20, rows))

    def step() -> None:
        batch = random.randrange(20)
        loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _blocks(step: Callable[[], None], switch: Switch, pairs: int) -> tuple[list[float], list[float]]:
    times: dict[bool, list[float]] = {True: [], False: []}
    drawn = random.Random(0)
    order = [True, False] * ((pairs + 1) // 2)
    drawn.shuffle(order)
    on = True
    for first in order[:pairs]:
        for watched in (first, not first):
            if watched != on:
                (switch.on if watched else switch.off)()
                on = watched
            times[watched].append(_block(step))
    if not on:
        switch.on()
    return times[True], times[False]


def _block(step: Callable[[], None]) -> float:
    began = time.process_time()
    for _ in range(BLOCK):
        step()
    return time.process_time() - began


def ratio(watched: Sequence[float], plain: Sequence[float]) -> Ratio:
    """Work out total over total, with its interval by bootstrap over the pairs.

    Example:
        >>> found = ratio([1.02, 1.03, 1.01, 1.02], [1.0, 1.0, 1.0, 1.0])
        >>> round(found.ratio, 3), 1.0 < found.low < found.high < 1.04
        (1.02, True)
    """
    from scipy.stats import bootstrap

    def total(one: Any, other: Any, axis: int = -1) -> Any:
        return np.sum(one, axis=axis) / np.sum(other, axis=axis)

    interval = bootstrap((watched, plain), total, paired=True, vectorized=True, method="percentile", rng=0).confidence_interval
    seconds = sum(plain) / len(plain) / BLOCK
    return Ratio(seconds, float(total(watched, plain)), float(interval.low), float(interval.high), len(plain))


def pool(ratios: Sequence[Ratio]) -> Ratio:
    """Pool processes into their mean, with Student's 95 % interval over the processes.

    Example:
        >>> str(pool([Ratio(0.001, 1.02, 1.0, 1.04, 40), Ratio(0.001, 1.04, 1.02, 1.06, 40), Ratio(0.001, 1.03, 1.0, 1.06, 40)]))
        '1.030 (1.005 to 1.055) at 1.00 ms a step, 120 pairs of 100 steps, 3 processes'
    """
    from scipy.stats import t

    if len(ratios) == 1:
        return ratios[0]
    values = [one.ratio for one in ratios]
    middle = statistics.mean(values)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    seconds = statistics.mean(one.step_seconds for one in ratios)
    return Ratio(seconds, middle, middle - half, middle + half, sum(one.pairs for one in ratios), len(values))


def measure_processes(name: str, processes: int, pairs: int) -> Ratio:
    """Measure one size in several fresh processes, one after the other, and pool them."""
    found = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory(prefix="lossdoctor-overhead-") as scratch:
            figures = Path(scratch, "figures.json")
            options = ["--sizes", name, "--pairs", str(pairs), "--processes", "1", "--runs", "0", "--json", str(figures)]
            subprocess.run([sys.executable, "-m", "lossdoctor.bench.overhead", *options], stdout=subprocess.DEVNULL, check=True)
            found.append(Ratio(**json.loads(figures.read_text())[name]))
    return pool(found)


@dataclass(frozen=True)
class Times:
    """Hold when a script had imported torch, done 30 steps, reached its last line, and its command ended: seconds after its start."""

    imported: float
    stepped: float
    finished: float
    ended: float


def measure_start(runs: int) -> dict[str, float]:
    """Run the short script alternately watched and not; return differences of the medians, in seconds."""
    with tempfile.TemporaryDirectory(prefix="lossdoctor-overhead-") as scratch:
        script = Path(scratch, "train.py")
        script.write_text(SCRIPT)
        watched, plain = [], []
        for _ in range(runs):
            plain.append(_timed([sys.executable, str(script)]))
            watched.append(_timed([sys.executable, "-m", "lossdoctor", "run", "--out", scratch + "/runs", str(script)]))

    def middle(taken: list[Times], name: str) -> float:
        return float(statistics.median(getattr(times, name) for times in taken))

    return {
        "torch imported later by": middle(watched, "imported") - middle(plain, "imported"),
        "30 steps done later by": middle(watched, "stepped") - middle(plain, "stepped"),
        "last line later by": middle(watched, "finished") - middle(plain, "finished"),
        "python's own end takes": statistics.median(times.ended - times.finished for times in plain),
        "report and end take": statistics.median(times.ended - times.finished for times in watched),
        "the script alone takes": middle(plain, "ended"),
    }


def _timed(command: Sequence[str]) -> Times:
    began = time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    ended = time.time()
    imported, stepped, finished = (float(text) - began for text in done.stdout.split())
    return Times(imported, stepped, finished, ended - began)


def _measured(name: str, processes: int, pairs: int) -> Ratio:
    if processes > 1:
        return measure_processes(name, processes, pairs)
    with tempfile.TemporaryDirectory(prefix="lossdoctor-overhead-") as scratch:
        return measure_steps(*SIZES[name], pairs, Path(scratch, "runs"))


def main() -> None:
    """Measure and print; `--json` writes the figures."""
    parser = argparse.ArgumentParser(description="Measure what watching costs a run.")
    parser.add_argument("--pairs", type=int, help=f"pairs of blocks of 100 steps in a process, for each size {PAIRS}")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"processes that are pooled [{PROCESSES}]")
    parser.add_argument("--runs", type=int, default=9, help="runs of the short script, each way [9]")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), help="which steps [all]")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in options.sizes:
        found = _measured(name, options.processes, options.pairs or PAIRS[name])
        figures[name] = vars(found)
        print(f"steps of about {name}: watched over not watched, CPU time: {found}", flush=True)
    if options.runs:
        figures["start"] = measure_start(options.runs)
        for name, seconds in figures["start"].items():
            print(f"{name} {seconds:.3f} s (median of {options.runs} runs)")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
