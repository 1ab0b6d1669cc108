"""Measure an unchanged script on this machine, shut off from it: which levers make it faster, and would a bigger one help?"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.core.run import Run
from lossdoctor.launch.child import Repetition, repeat
from lossdoctor.session import Choice

if TYPE_CHECKING:
    from lossdoctor.core.diagnosis import Diagnosis
    from lossdoctor.launch.supervisor import Job

# Name and time limit of each, in s: what one idle core needs for small networks, several times over.
EXPERIMENTS = (("throughput", 20.0), ("memorise", 20.0), ("memory", 20.0))
_LATE = 20.0  # s by which an experiment may overrun its limit
_START = 30.0  # s for imports and preparing data, beside the training's limit
_LAST_LINES = 3


def measure_machine(
    job: Job, choice: Choice, seconds: float, devices: Mapping[str, Mapping[str, Any]], memory: float | None = None
) -> Diagnosis:
    """Run a script for a while in an isolated child, do the experiments that the decision needs, and diagnose it.

    Args:
        seconds: of training at most; a script that ends before is seen to its end.
        devices: the user's, by name (`machine.devices`).
        memory: GiB that the process may have while the largest batch is tried; not tried where left out.
    """
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose import diagnose
    from lossdoctor.diagnose.upgrade import decide

    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch:
        write_private(job, Path(scratch))
        see: dict[str, Any] = {"seconds": seconds, "experiments": EXPERIMENTS}
        if memory is not None:
            see["extra"] = {"limit_bytes": int(memory * 2**30)}
        by_name = {"answers": "lossdoctor.experiments.workup", "plan": "lossdoctor.diagnose.plan"}
        limit = _START + seconds + sum(each + _LATE for _, each in EXPERIMENTS)
        ended = repeat(
            Path(scratch), Path(scratch), [{"name": "see", "parameters": see | by_name}], limit, treats="lossdoctor.machine.seen"
        )
        if ended.folder is not None:
            write_end(ended, Path(scratch))
        run = load_run(ended.folder) if ended.folder is not None else Run(facts={"script": job.script})
        run.notes += why_not(ended, Path(scratch))
    return decide(run, diagnose(run, select=choice.select, ignore=choice.ignore), devices)


def measure_speed(job: Job, choice: Choice, seconds: float, wanted: Sequence[str]) -> Diagnosis:
    """Try the levers of speed on a script, each beside a control, in isolated children, and diagnose what a control shows.

    Args:
        seconds: for all of it, at most.
        wanted: names of levers; all that may apply where empty.
    """
    from lossdoctor.diagnose import diagnose
    from lossdoctor.machine.speed import Trials, described

    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as folder:
        write_private(job, Path(folder))
        result = Trials(Path(folder), seconds, choice.say).run(wanted)
    run = result.control or Run(facts={"script": job.script})
    run.notes += result.notes
    diagnosis = diagnose(run, select=choice.select or _of_speed(), ignore=choice.ignore)
    diagnosis.vitals["speed"] = described(result)
    diagnosis.next_step = ""
    return diagnosis


def _of_speed() -> tuple[str, ...]:
    """Return the families of faults that cost time or memory: a few steps of a script tell nothing of the others."""
    from lossdoctor.core.fault import faults

    return tuple(sorted({fault.family for fault in faults().values()} & {"PIP", "PRF", "MEM"}))


def write_private(job: Job, folder: Path) -> None:
    """Write what a repetition needs of a job, as a watched run's folder holds it."""
    arguments, module = list(job.arguments), job.module
    private = {"argv": arguments, "module": module, "cwd": os.getcwd(), "environ": dict(os.environ), "python": sys.executable}
    file = folder / "private.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(private), encoding="utf-8")


def write_end(ended: Repetition, scratch: Path) -> None:
    """Write how a repetition ended into its run, as a supervisor does: by itself, or stopped since enough was seen."""
    assert ended.folder is not None
    told: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        told = json.loads((scratch / "ending.json").read_text())
    end = {"how": told.get("how", "stopped"), "exception": told.get("exception"), "status": told.get("status", 0)}
    (ended.folder / "end.json").write_text(json.dumps({**end, "seconds": round(ended.seconds, 3)}))


def why_not(ended: Repetition, scratch: Path) -> list[str]:
    """Say what kept a repetition from its end; empty where nothing did."""
    if ended.refused:
        return [f"the script was stopped at {ended.refused}: measured, it may change nothing, and this machine allows no namespaces"]
    if ended.timed_out:
        return ["the script took too long to its first steps, or for the experiments, and was ended"]
    if ended.folder is None:
        lines = (scratch / "output.txt").read_text(errors="replace").splitlines()
        return ["nothing was trained; the script's last words: " + " / ".join(lines[-_LAST_LINES:])]
    return []
