"""Check a script before its long run: run it shut off for a while, do every experiment, diagnose."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lossdoctor.launch.checked import Checked, Limits, run_checked
from lossdoctor.launch.supervisor import Job, write_ending
from lossdoctor.session import Choice

if TYPE_CHECKING:
    from lossdoctor.core.diagnosis import Diagnosis
    from lossdoctor.core.run import Run
    from lossdoctor.launch.ask import Ask

_LONGEST = 8.0  # seconds for one experiment: the next must get its turn


def check_script(job: Job, choice: Choice, limits: Limits) -> Diagnosis:
    """Run a script until enough was seen of it, work it up and diagnose it.

    The run is kept in `job.out`, like a watched one.
    """
    from lossdoctor.diagnose import diagnose
    from lossdoctor.report.json import dumps

    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch:
        done = run_checked(job, Path(scratch), limits, lambda ask, until: _work_up(ask, until, choice.say))
        run = _run(job, done)
        diagnosis = diagnose(run, select=choice.select, ignore=choice.ignore, mode="check")
        if done.folder is not None:
            write_ending(done.folder, done.ending)
            (done.folder / "diagnosis.json").write_text(dumps(diagnosis), encoding="utf-8")
            _keep(done.folder, job.out)
    return diagnosis


def _work_up(ask: Ask, until: float, say: Callable[[str], None]) -> None:
    """Do every experiment, cheapest first, as long as time is left."""
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose.plan import CHECKS, parameters

    folder = Path((ask({}) or {}).get("folder", ""))
    for name in CHECKS:
        run, left = load_run(folder), until - time.monotonic()
        if not run.trainings or left <= 0:
            return
        say(f"{name} ...")
        answer = ask({"experiment": name, "seconds": min(left, _LONGEST), "parameters": parameters(run.trainings[0])})
        if answer is None:
            return
        with (folder / "record-workup-0000.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(answer) + "\n")


def _run(job: Job, done: Checked) -> Run:
    """Load what was recorded, with a note on everything that a reader should know of how it came about."""
    from lossdoctor.core.run import Run
    from lossdoctor.core.store import load_run

    run = Run(facts={"script": job.script}) if done.folder is None else load_run(done.folder)
    run.facts["ended"] = done.ending.facts
    if done.ending.note:
        run.notes.append(done.ending.note)
    why = _why(done)
    return Run(run.facts, run.trainings, [*run.notes, why]) if why else run


def _why(done: Checked) -> str:
    """Say what kept a script from being seen as it would run; empty where nothing did."""
    if done.refused:
        return f"the script was stopped at {done.refused}: checked, it may change nothing, and this machine allows no namespaces"
    if done.ending.how == "exception":
        return f"the script ended by an error: {done.words.splitlines()[-1] if done.words else done.ending.exception}"
    return "the script did not come to the end of a step in time and was killed" if done.ending.how == "killed" else ""


def _keep(folder: Path, out: Path) -> None:
    """Move a run from the scratch folder to where runs are kept."""
    from lossdoctor.record.writer import keep_run

    keep_run(folder, out)
