"""Join the parts: watch a script, load what was recorded, diagnose it, keep the report beside the record.

What is active (experiments, trials) finds its place in `diagnose_run`: between two diagnoses of one run.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.launch.supervisor import Ending, Job, patient_with_interrupts, run_folder, supervise, write_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lossdoctor.core.diagnosis import Diagnosis
    from lossdoctor.core.run import Run, Training
    from lossdoctor.launch.ask import Ask
    from lossdoctor.trials.fix import Fix


@dataclass(frozen=True)
class Choice:
    """Hold which faults to look for and which experiments to do.

    Args:
        select: codes, slugs or families to look for; all where empty.
        ignore: codes, slugs or families to leave out.
        workup: `auto`, `none` or `full`.
        children: whether the script may be run again.
        say: tells the user what is about to be done.

    Example:
        >>> Choice(ignore=("NUM",)).workup
        'auto'
    """

    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    workup: str = "auto"
    children: bool = False
    say: Callable[[str], None] = lambda words: None


@dataclass(frozen=True)
class Outcome:
    """Hold what a watched script left.

    Args:
        ending: how its process ended.
        folder: its run, or None where nothing was recorded.
        diagnosis: what was found, or None where our own error kept us from it.
        error: that error, or None.
    """

    ending: Ending
    folder: Path | None = None
    diagnosis: Diagnosis | None = None
    error: Exception | None = None


def watch_script(job: Job, choice: Choice, *, modules: Sequence[str] = ()) -> Outcome:
    """Run a script to its end and diagnose it; an error of ours is part of the outcome, for the script has run.

    Args:
        modules: imported while the script runs, so that the report stands soon after its end.
    """
    meanwhile = lambda: _import(("lossdoctor.diagnose", "lossdoctor.core.store", *modules))  # noqa: E731
    ending = supervise(job, meanwhile, None if choice.workup == "none" else lambda ask: _work_up(ask, choice))
    folder = None
    try:
        with patient_with_interrupts():
            folder = run_folder(job.out, ending)
            if folder is not None:
                write_ending(folder, ending)
            return Outcome(ending, folder, diagnose_run(_run(job, ending, folder), folder, choice))
    except KeyboardInterrupt:
        return Outcome(ending, folder, error=LossdoctorError("interrupted before the report was ready"))
    except Exception as error:
        return Outcome(ending, folder, error=error)


# How many times as long a work-up may take where others keep the cores busy (starting value).
PATIENCE = 3.0


def _work_up(ask: Ask, choice: Choice) -> None:
    """Have the ended script's process do experiments, cheapest first, as long as one could settle what is open and time is left."""
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose import diagnose
    from lossdoctor.diagnose.plan import SHARES, next_experiment, parameters

    folder = Path((ask({}) or {}).get("folder", ""))
    worked, asked, answer = 0.0, list[str](), None
    # What needs a child costs most, so it comes after all that could settle the matter without one.
    children = ["rate"] if choice.children else []
    while True:
        run = load_run(folder)
        if not run.trainings:
            return
        diagnosis = diagnose(run, select=choice.select, ignore=choice.ignore)
        name = next_experiment(diagnosis, run.trainings[0], choice.workup == "full", asked)
        left = _limit(run) - worked
        if left <= 0:
            return
        if name is not None:
            seconds = SHARES.get(name, 1.0) * left
            answer = ask({"experiment": name, "seconds": seconds, "patience": PATIENCE, "parameters": parameters(run.trainings[0])})
            asked.append(name)
        elif children and _refused(run.trainings[0], children[0]):
            again = next_experiment(diagnosis, run.trainings[0], choice.workup == "full", [each for each in asked if each != children[0]])
            answer = _rate_in_child(folder, run.trainings[0], left, choice) if again == children.pop() else None
        else:
            return
        if answer is None:
            return
        worked += float(answer.get("worked", answer["seconds"]))
        with (folder / "record-workup-0000.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(answer) + "\n")


def _refused(training: Training, experiment: str) -> bool:
    done = training.experiments.get(experiment)
    return done is not None and done.status == "unknown"


def _rate_in_child(folder: Path, training: Training, left: float, choice: Choice) -> Mapping[str, Any] | None:
    """Run the script again where its steps cannot be replayed, and say beforehand what it will cost; None where time is short."""
    from lossdoctor.trials.rerun import expected_seconds, rate_in_child

    expected = expected_seconds(training)
    if expected > left:
        return None
    choice.say(f"running the script again with another rate, shut off from the machine: about {expected:.0f} s")
    return rate_in_child(folder, training, left)


def _limit(run: Run) -> float:
    """Return how many seconds a work-up may take: min(max(10 s, 20 % of the run's time), 5 min)."""
    walls = [float(training.signals["wall"].values.max()) for training in run.trainings if "wall" in training.signals]
    return min(max(10.0, 0.2 * max(walls, default=0.0)), 300.0)


def diagnose_folder(folder: Path, choice: Choice) -> Diagnosis:
    """Diagnose a recorded run.

    Raises:
        LossdoctorError: where the folder holds no run.
    """
    from lossdoctor.core.store import load_run
    from lossdoctor.trials.results import attach

    diagnosis = diagnose_run(load_run(folder), None, choice)
    attach(diagnosis, folder)
    return diagnosis


def confirm_folder(folder: Path, choice: Choice, limit: float | None = None, *, edit: bool = False) -> tuple[Diagnosis, Fix | None]:
    """Try the treatments of what a recorded run is diagnosed with, and keep the trials in its folder.

    Args:
        folder: of the run.
        choice: which faults to look for.
        limit: seconds for each trial; twice the run's time and twenty seconds where None.
        edit: whether to look for the fix as an edit of the source, and to try that.

    Returns:
        The diagnosis with the trials, and the fix where it was asked for.

    Raises:
        LossdoctorError: the folder holds no run, its script cannot be started again, or the disk is short.
    """
    from lossdoctor.core.store import load_run
    from lossdoctor.trials.confirm import Confirmer, cores
    from lossdoctor.trials.fix import fix_of
    from lossdoctor.trials.results import attach

    run = load_run(folder)
    diagnosis = diagnose_run(run, None, choice)
    confirmation = Confirmer(folder, run, limit, choice.say, workers=cores()).confirm(diagnosis)
    fix = fix_of(confirmation, run) if edit else None
    attach(diagnosis, folder)
    return diagnosis, fix


def check_choice(choice: Choice) -> None:
    """Raise `UsageError` where a choice names no fault; before a long run, not after it."""
    if choice.select or choice.ignore:
        from lossdoctor.diagnose import choose

        choose(choice.select, choice.ignore)


def _run(job: Job, ending: Ending, folder: Path | None) -> Run:
    from lossdoctor.core.run import Run
    from lossdoctor.core.store import load_run

    run = Run(facts=_facts(job, ending)) if folder is None else load_run(folder)
    if ending.note:
        run.notes.append(ending.note)
    if folder is None:
        run.notes += _why_no_record(job, ending)
    return run


def _why_no_record(job: Job, ending: Ending) -> list[str]:
    """Say what may have kept a script that trains from leaving a record."""
    notes = []
    if ending.status < 0:
        notes.append(f"{_signal(ending)} ended the script before anything was recorded, or within half a second of its first step")
    parent = next(folder for folder in (job.out, *job.out.parents) if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        notes.append(f"nothing can be recorded in {job.out}: it cannot be written to; --out names another folder")
    elif shutil.disk_usage(parent).free < 1 << 20:
        notes.append(f"nothing can be recorded in {job.out}: the disk is full")
    return notes


def _signal(ending: Ending) -> str:
    try:
        return signal.Signals(-ending.status).name
    except ValueError:
        return f"signal {-ending.status}"


def _facts(job: Job, ending: Ending) -> dict[str, Any]:
    """Return what is known of a script that recorded nothing."""
    started = datetime.datetime.fromtimestamp(ending.began).isoformat(timespec="seconds")
    return {"script": job.script, "started": started, "pid": ending.pid, "ended": ending.facts}


def diagnose_run(run: Run, folder: Path | None, choice: Choice) -> Diagnosis:
    """Diagnose a run, and keep the report in its folder where one is given."""
    from lossdoctor.diagnose import diagnose
    from lossdoctor.report.json import dumps

    diagnosis = diagnose(run, select=choice.select, ignore=choice.ignore)
    if folder is not None:
        with suppress(OSError):  # a full disk: the report is still printed
            (folder / "diagnosis.json").write_text(dumps(diagnosis), encoding="utf-8")
    return diagnosis


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
