"""Diagnose what a log holds: each of its runs by the one engine; the worst is the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, Diagnosis, Finding
from lossdoctor.core.run import Run, Training

_SEVERITY = {"error": 3, "warning": 2, "advice": 1}
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
    if len(run.trainings) > 1:
        diagnosis.notes.append(_said(run, worst[0], single))
    return diagnosis


def _one(run: Run, training: Training, diagnose: Any, select: Sequence[str], ignore: Sequence[str]) -> tuple[Training, Diagnosis]:
    alone = dataclasses.replace(training, index=0, run_facts=run.facts)
    found: Diagnosis = diagnose(Run(dict(run.facts), [alone], list(run.notes)), select=select, ignore=ignore, mode="read")
    found.verdict = verdict(found)
    return training, found


def verdict(diagnosis: Diagnosis) -> str:
    """Return the verdict of a log: where nothing is worse, what a curve alone shows (CUR) may be it, or an advice."""
    if diagnosis.verdict not in (HEALTHY, UNDETERMINED):
        return diagnosis.verdict
    told = [finding for finding in diagnosis.present if finding.explained_by is None]
    if diagnosis.verdict == UNDETERMINED and not any(finding.slug == "run-too-short" for finding in told):
        return UNDETERMINED
    curve = [finding for finding in told if finding.family == "CUR" or finding.slug in ("loss-spike", "too-few-epochs")]
    curve.sort(key=lambda finding: (finding.slug != "run-too-short", finding.slug == "runs-concatenated", -finding.probability))
    return curve[0].slug if curve else diagnosis.verdict


def badness(diagnosis: Diagnosis) -> tuple[int, float]:
    """Order diagnoses from harmless to bad: by severity of the worst cause, then by its probability."""
    causes = [finding for finding in diagnosis.present if finding.explained_by is None]
    if diagnosis.verdict == UNDETERMINED:
        return (2, 0.0)
    return max(((_SEVERITY[finding.severity], finding.probability) for finding in causes), default=(0, 0.0))


def _summary(training: Training, diagnosis: Diagnosis) -> dict[str, Any]:
    held = diagnosis.trainings[0] if diagnosis.trainings else {}
    facts = {name: training.facts[name] for name in ("name", "log_part", "log_resumes") if name in training.facts}
    return {**held, "index": training.index, "verdict": diagnosis.verdict, **facts}


def _keep_training_numbers(diagnosis: Diagnosis, training: Training) -> None:
    finding: Finding
    for finding in diagnosis.findings:
        finding.training = training.index


def _said(run: Run, worst: Training, single: Sequence[tuple[Training, Diagnosis]]) -> str:
    sick = sum(badness(found)[0] >= 2 for _, found in single)
    return (
        f"the log holds {len(run.trainings)} runs, {sick} of them with a warning or an error; the verdict is that of run {worst.index + 1}"
    )
