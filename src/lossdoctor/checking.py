"""Check a script before its long run: run it shut off for a while, do every experiment, diagnose."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lossdoctor.launch.checked import Checked, Clock, Limits, run_checked
from lossdoctor.launch.supervisor import Job, write_ending
from lossdoctor.session import Choice

if TYPE_CHECKING:
    from lossdoctor.core.diagnosis import Diagnosis
    from lossdoctor.core.run import Run, Training
    from lossdoctor.launch.ask import Ask

_LONGEST = 8.0  # seconds for one experiment: the next must get its turn
# Where a step takes so long, the whole may take three minutes, and what tells most comes first: ten steps must fit into an experiment.
_HEAVY, _HEAVY_SECONDS, _HEAVY_LONGEST = 1.0, 140.0, 60.0
_HEAVY_FIRST = ("memorise", "flow", "look", "linear", "tokens", "padding")


def check_script(job: Job, choice: Choice, limits: Limits) -> Diagnosis:
    """Run a script until enough was seen of it, work it up and diagnose it.

    The run is kept in `job.out`, like a watched one.
    """
    from lossdoctor.diagnose import diagnose
    from lossdoctor.report.json import dumps

    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch:
        done = run_checked(job, Path(scratch), limits, lambda ask, clock: _work_up(ask, clock, choice.say))
        run = _run(job, done)
        diagnosis = diagnose(run, select=choice.select, ignore=choice.ignore, mode="check")
        if done.folder is not None:
            write_ending(done.folder, done.ending)
            (done.folder / "diagnosis.json").write_text(dumps(diagnosis), encoding="utf-8")
            _keep(done.folder, job.out)
    return diagnosis


def _work_up(ask: Ask, clock: Clock, say: Callable[[str], None]) -> None:
    """Do every experiment, cheapest first, as long as time is left."""
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose.plan import CHECKS, parameters

    folder = Path((ask({}) or {}).get("folder", ""))
    names, longest = CHECKS, _LONGEST
    trainings = load_run(folder).trainings
    if trainings and step_seconds(trainings[0]) > _HEAVY:
        clock.last, longest = max(clock.last, time.monotonic() + _HEAVY_SECONDS), _HEAVY_LONGEST
        names = (*_HEAVY_FIRST, *(name for name in CHECKS if name not in _HEAVY_FIRST))
    for name in names:
        run, left = load_run(folder), clock.last - time.monotonic()
        if not run.trainings or left <= 0:
            return
        say(f"{name} ...")
        answer = ask({"experiment": name, "seconds": min(left, longest), "parameters": parameters(run.trainings[0])})
        if answer is None:
            return
        with (folder / "record-workup-0000.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(answer) + "\n")


def step_seconds(training: Training) -> float:
    """Return the median time of forward, backward and step; 0 where it is not known.

    Example:
        >>> from lossdoctor.core.run import Series, Training
        >>> step_seconds(Training(signals={"forward_seconds": Series.of([2.0, 1.0]), "backward_seconds": Series.of([1.0, 1.0])}))
        2.5
    """
    from statistics import median

    parts = [
        training.signals[name].finite() for name in ("forward_seconds", "backward_seconds", "step_seconds") if name in training.signals
    ]
    return sum(float(median(part.values.tolist())) for part in parts if len(part))


def _run(job: Job, done: Checked) -> Run:
    """Load what was recorded, with a note on everything that a reader should know of how it came about."""
    from lossdoctor.core.run import Run
    from lossdoctor.core.store import load_run

    run = Run(facts={"script": job.script}) if done.folder is None else load_run(done.folder)
    run.facts["ended"] = done.ending.facts
    if done.ending.note:
        run.notes.append(done.ending.note)
    told = [each for each in (_why(done), undone(run)) if each]
    return Run(run.facts, run.trainings, [*run.notes, *told]) if told else run


def undone(run: Run) -> str:
    """Say which experiments the time did not last for; empty where all were tried, or nothing was trained.

    A machine that is busy with other work leaves time for few: what they would have found is not ruled out.
    """
    from lossdoctor.diagnose.plan import CHECKS

    tried = run.trainings[0].experiments if run.trainings else dict.fromkeys(CHECKS)
    left = [name for name in CHECKS if name not in tried]
    return f"the time was over before {', '.join(left)}: lossdoctor check --workup-seconds 60 gives them more" if left else ""


# What torch says, and what it means to a training.
_WORDS = (
    ("grad can be implicitly created only for scalar outputs", "backward was called on a loss of several numbers: take its mean"),
    (
        "does not require grad and does not have a grad_fn",
        "the loss is cut from the model (LOS007), or nothing in the model can learn (TUN002)",
    ),
    ("is out of bounds", "a class number reaches the number of outputs: classes are counted from 0 (LAB003)"),
    ("Assertion `t >= 0 && t < n_classes` failed", "a class number reaches the number of outputs: classes are counted from 0 (LAB003)"),
    ("shapes cannot be multiplied", "a batch has another number of features than the layer takes"),
    ("Expected more than 1 value per channel when training", "batch norm met a batch of one: set drop_last=True"),
)


def _why(done: Checked) -> str:
    """Say what kept a script from being seen as it would run; empty where nothing did."""
    if done.refused:
        return f"the script was stopped at {done.refused}: checked, it may change nothing, and this machine allows no namespaces"
    if done.ending.how == "exception":
        last = done.words.splitlines()[-1] if done.words else str(done.ending.exception)
        meant = next((meaning for words, meaning in _WORDS if words in last), "")
        return f"the script ended by an error: {last}{'; ' if meant else ''}{meant}"
    if done.ending.how == "stopped":
        return "the script was ended early: what shows only in a whole run is unknown, not ruled out; lossdoctor run watches it"
    return "the script did not come to the end of a step in time and was killed" if done.ending.how == "killed" else ""


def _keep(folder: Path, out: Path) -> None:
    """Move a run from the scratch folder to where runs are kept."""
    from lossdoctor.record.writer import keep_run

    keep_run(folder, out)
