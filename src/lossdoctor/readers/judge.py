"""Diagnose what a log holds: each of its runs by the one engine; the worst is the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, Diagnosis, Finding
from lossdoctor.core.run import Run, Series, Training
from lossdoctor.derive.curves import objective, shape
from lossdoctor.readers import figures

_SEVERITY = {"error": 3, "warning": 2, "advice": 1}
# Advice that may be the verdict of a log, the most telling first.
TELLING = (
    "run-too-short",
    "overfitting",
    "memorisation-staircase",
    "plateau-then-drop",
    "loss-spike",
    "val-better-than-train",
    "runs-concatenated",
    "loss-noisy",
    "too-few-epochs",
)
# A run that lost so much of its start and ended so near its best (shares) learnt (starting values).
FELL, NEAR_BEST = 0.05, 0.3
# No curve makes a cause more certain than this: what it shows has other causes now and then.
SUREST = 0.95
# Roles whose columns are named in the report.
SAID = frozenset({"loss", "validation_loss", "metric", "validation_metric", "lr", "step", "epoch"})
# What `check` settles before a long run; the rest needs a watched run.
CHECKED = frozenset({"underfitting", "loss-flat", "val-better-than-train"})
# Every finding of this many runs is looked at; of more, the longest are.
MOST_JUDGED = 100


def judge(run: Run, *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Diagnosis:
    """Diagnose a run read from a log.

    Args:
        run: with one training per run that the log holds.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.
    """
    from lossdoctor.diagnose import diagnose

    judged = sorted(run.trainings, key=lambda training: -training.steps)[:MOST_JUDGED]
    single = [_one(run, training, diagnose, select, ignore) for training in sorted(judged, key=lambda training: training.index)]
    if not single:
        return diagnose(run, select=select, ignore=ignore, mode="read")
    worst = max(single, key=lambda pair: (badness(pair[1]), pair[0].steps))
    diagnosis = worst[1]
    diagnosis.trainings = [_summary(training, found) for training, found in single]
    diagnosis.vitals["trainings"] = len(run.trainings)
    _keep_training_numbers(diagnosis, worst[0])
    _how_sure(diagnosis)
    diagnosis.notes += figures.notes(worst[0])
    _say_columns(diagnosis)
    if len(run.trainings) > 1:
        diagnosis.notes.append(_said(run, worst[0], single))
    return diagnosis


def _one(run: Run, training: Training, diagnose: Any, select: Sequence[str], ignore: Sequence[str]) -> tuple[Training, Diagnosis]:
    alone = dataclasses.replace(training, index=0, run_facts=run.facts)
    found: Diagnosis = diagnose(Run(dict(run.facts), [alone], list(run.notes)), select=select, ignore=ignore, mode="read")
    if "log" in training.facts:
        for finding in found.findings:
            finding.probability = min(finding.probability, SUREST)
    found.verdict = verdict(found, training)
    return training, found


def verdict(diagnosis: Diagnosis, training: Training) -> str:
    """Return the verdict of a log: where nothing is worse, what the curve alone shows may be it.

    Args:
        diagnosis: of one run of the log.
        training: that run; losses that are not expected to fall, and runs that go on from trained weights, did not fail by
            staying level.
    """
    if diagnosis.verdict not in (HEALTHY, UNDETERMINED):
        return diagnosis.verdict
    told = {finding.slug for finding in diagnosis.present if finding.explained_by is None}
    first = next((slug for slug in TELLING if slug in told), None)
    if diagnosis.verdict == HEALTHY or first == TELLING[0]:
        return first or HEALTHY
    return (first or HEALTHY) if _did_not_fail(training) else UNDETERMINED


def _did_not_fail(training: Training) -> bool:
    """Tell whether a run that ended level or has few values learnt, or was not expected to."""
    loss = training.signals.get("loss", Series.of([]))
    if not len(loss):
        return True
    if not np.isfinite(loss.last):
        return False
    found = shape(loss)
    falls = found is not None and found.fall > FELL and found.level - found.best < NEAR_BEST * (found.start - found.best)
    return falls or objective(training) != "plain" or bool(training.facts.get("log_continues"))


def badness(diagnosis: Diagnosis) -> tuple[int, float]:
    """Order diagnoses from harmless to bad: by severity of the worst cause, then by its probability."""
    causes = [finding for finding in diagnosis.present if finding.explained_by is None]
    if diagnosis.verdict == UNDETERMINED:
        return (2, 0.0)
    return max(((_SEVERITY[finding.severity], finding.probability) for finding in causes), default=(0, 0.0))


def _summary(training: Training, diagnosis: Diagnosis) -> dict[str, Any]:
    held = diagnosis.trainings[0] if diagnosis.trainings else {}
    facts: dict[str, Any] = {name: training.facts[name] for name in ("name", "log_part", "log_resumes") if name in training.facts}
    return {**held, **facts, "index": training.index, "verdict": diagnosis.verdict}


def _how_sure(diagnosis: Diagnosis) -> None:
    """Say of a verdict that rests on a curve what else it may be, and which command would decide."""
    from lossdoctor.core.fault import faults

    fault = faults().get(diagnosis.verdict)
    finding = diagnosis.finding(diagnosis.verdict)
    if fault is None or finding is None:
        return
    doubt = " ".join(fault.section("When this is wrong").split())
    diagnosis.notes.append(f"a curve alone gives {finding.probability:.0%} for {fault.slug}. {doubt}")
    if not diagnosis.next_step:
        diagnosis.next_step = "lossdoctor check train.py" if fault.slug in CHECKED else "lossdoctor run train.py"


def _say_columns(diagnosis: Diagnosis) -> None:
    """Say which columns were read as what."""
    told = [f"{entry['role']}: {entry['column']}" for entry in diagnosis.run.get("columns", []) if entry["role"] in SAID]
    if told:
        diagnosis.notes.append(f"read as {', '.join(sorted(told))}; --map ROLE=COLUMN changes it")


def _keep_training_numbers(diagnosis: Diagnosis, training: Training) -> None:
    finding: Finding
    for finding in diagnosis.findings:
        finding.training = training.index


def _said(run: Run, worst: Training, single: Sequence[tuple[Training, Diagnosis]]) -> str:
    sick = sum(badness(found)[0] >= 2 for _, found in single)
    return (
        f"the log holds {len(run.trainings)} runs, {sick} of them with a warning or an error; the verdict is that of run {worst.index + 1}"
    )
