"""Step on captured batches with a clock: what a step costs, what it consists of, and what more rows or other threads would cost.

Only the compute is timed, from the model's forward to the optimiser's step: whatever a script does between steps is not part of
a replay. Variants are timed in turn, and shares are told from CPU time, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from lossdoctor.experiments.replay import Deadline, Replay
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.machine.census import Census, Counting
from lossdoctor.machine.peaks import measure_peaks, wait_for

GROWTH = 4  # times the rows: enough to tell a fixed cost from one that goes by the row
SECONDS = 1.5  # for each variant, all rounds together
ROUNDS = 15
_HOPELESS = 2 * GROWTH  # times the own step's time, after which a variant is not timed again
Step = Callable[[], Any]


class Time(NamedTuple):
    """Hold what a step takes: seconds by the wall clock, and CPU seconds of the process."""

    seconds: float
    cpu: float


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what a step of the first captured batch costs.

        Returns:
            `rows`, `device`, `seconds` (of one step), `flops`, `bytes`, `operations`, `kinds` (list of count, flops, bytes),
            `flops_by_dtype`, `peaks` (flops, half_flops, bandwidth, launch_seconds of this device), `threads`, `cores`,
            `seconds_by_threads`, `growth` (times the rows) and `grown_seconds`, `fixed_share` (of the step's time, that does not
    go by the row; null where the batch cannot be enlarged).
    """
    threads, cores = torch.get_num_threads(), _cores()
    step, grown = _step(replay, parameters), _grown_step(replay, parameters)
    device = next(p.device for p in replay.captures.models[replay.batches[0].modules[0]].parameters())
    census = _census(step)
    variants: dict[str, tuple[Step, int]] = {"own": (step, threads)}
    if grown is not None:
        variants["grown"] = (grown, threads)
    if device.type == "cpu":
        variants |= {f"threads {count}": (step, count) for count in {1, max(1, cores // 2), cores} - {threads}}
    found = _race(variants, device, deadline)
    by_threads = {threads: found["own"].seconds}
    by_threads |= {variants[name][1]: each.seconds for name, each in found.items() if name.startswith("threads")}
    facts: dict[str, Any] = {"rows": replay.batches[0].rows, "device": str(device), "seconds": found["own"].seconds}
    facts |= {"flops": census.flops, "bytes": census.bytes, "operations": census.operations, "kinds": census.rows()}
    facts |= {"flops_by_dtype": dict(census.flops_by_dtype), "peaks": measure_peaks(device).facts()}
    facts |= {"threads": threads, "cores": cores, "seconds_by_threads": {str(count): value for count, value in by_threads.items()}}
    facts |= {"growth": GROWTH, "fixed_share": None, "devices": _elsewhere(replay, parameters, device, deadline)}
    if "grown" in found:
        one, more = (each.cpu if device.type == "cpu" else each.seconds for each in (found["own"], found["grown"]))
        facts |= {"grown_seconds": found["grown"].seconds, "fixed_share": fixed_share(one, more, GROWTH)}
    return facts


def fixed_share(own: float, grown: float, growth: int) -> float:
    """Return the share of a step's time that does not grow with the rows, from its time and that of one with `growth` times as many.

    Example:
        >>> fixed_share(1.0, 2.5, 4)
        0.5
    """
    return min(1.0, max(0.0, (growth - grown / own) / (growth - 1)))


def _elsewhere(replay: Replay, parameters: dict[str, Any], here: torch.device, deadline: Deadline) -> dict[str, float]:
    """Time the same step on the accelerators of this machine, and on its processor where the script runs on another device."""
    found: dict[str, float] = {}
    kinds = [kind for kind in ("cuda", "mps", "xpu") if hasattr(torch, kind) and getattr(torch, kind).is_available()]
    for kind in {*kinds, "cpu"} - {here.type}:
        if kind == "cpu" and not kinds:
            continue
        try:
            step = _step(replay, parameters, device=torch.device(kind))
        except (RuntimeError, TypeError):  # a kernel that the device lacks, a dtype that it does not know, no memory left
            continue
        found[kind] = _race({"own": (step, torch.get_num_threads())}, torch.device(kind), deadline)["own"].seconds
    return found


def _step(replay: Replay, parameters: dict[str, Any], growth: int = 1, device: torch.device | None = None) -> Step:
    """Build one training step on the first captured batch, its rows repeated, and do it once: a first one pays for later ones."""
    batch, models = replay.batches[0], [model.to(device) if device is not None else model for model in replay.start()]
    optimizer = optimizer_for(models, parameters, 1e-3)  # the weights should stay what they are
    rows = torch.arange(batch.rows).repeat(growth) if growth > 1 else None
    constants = replay.constants(batch, rows)

    def step() -> None:
        optimizer.zero_grad()
        replay.loss_of(models, batch, constants, None if rows is None else len(rows)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    return step


def _grown_step(replay: Replay, parameters: dict[str, Any]) -> Step | None:
    """Build a step with more rows; None where the batch cannot be enlarged."""
    try:
        return _step(replay, parameters, GROWTH)
    except (RuntimeError, IndexError, ValueError):
        return None


def _census(step: Step) -> Census:
    census = Census()
    with Counting(census, place=None):
        step()
    return census


def _race(variants: dict[str, tuple[Step, int]], device: torch.device, deadline: Deadline) -> dict[str, Time]:
    """Time the variants in turn and return the best of each: what disturbs a step only makes it longer."""
    own = torch.get_num_threads()
    times: dict[str, list[Time]] = {name: [] for name in variants}
    until = time.monotonic() + SECONDS * len(variants)
    try:
        for number in range(ROUNDS):
            if number >= 3 and (deadline.over or time.monotonic() > until):
                break
            for name, (step, threads) in variants.items():
                if number and times[name][0].seconds > _HOPELESS * times["own"][0].seconds:
                    continue  # threads that wait for one another while others hold the cores
                torch.set_num_threads(threads)
                times[name].append(_timed(step, device))
    finally:
        torch.set_num_threads(own)
    return {name: Time(min(each.seconds for each in found), min(each.cpu for each in found)) for name, found in times.items()}


def _timed(step: Step, device: torch.device) -> Time:
    """Time a step right after another one, which pays for a change of threads and of what lies in the caches."""
    step()
    wait_for(device)
    began, cpu = time.perf_counter(), time.process_time()
    step()
    wait_for(device)
    return Time(max(time.perf_counter() - began, 1e-9), max(time.process_time() - cpu, 1e-9))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
