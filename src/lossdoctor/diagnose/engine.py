"""Ask every fault about every training of a run, and hand what they say to triage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from lossdoctor.core.catalogue import seen_in
from lossdoctor.core.diagnosis import BiggerMachine, Diagnosis, Evidence, Finding, Severity
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Fault, faults, find_fault
from lossdoctor.core.run import Run, Training
from lossdoctor.core.signals import SIGNALS
from lossdoctor.diagnose import across, confidence, machine, triage, vitals

Mode = Literal["run", "check", "read"]
T = TypeVar("T")

PRESENT = 0.8  # DESIGN "Present, severity, healthy"
SUSPECTED = 0.3
SEVERITIES: tuple[Severity, ...] = ("advice", "warning", "error")


def diagnose(run: Run, *, select: Sequence[str] = (), ignore: Sequence[str] = (), mode: Mode = "run") -> Diagnosis:
    """Judge a run by the faults of the folder; a rule that raises becomes a finding that `broke`, never an error.

    Args:
        run: what was recorded, finished or still under way.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.
        mode: `run` and `check` hold symptoms of the curve (CUR) to advice; in `read` they may be the verdict.

    Raises:
        UsageError: where `select` or `ignore` names no fault.

    Example:
        >>> diagnose(Run()).verdict
        'undetermined'
    """
    chosen = choose(select, ignore)
    diagnosis = Diagnosis(notes=list(run.notes), run={name: value for name, value in run.facts.items() if name != "ranks"})
    attempt = _Attempt(diagnosis)
    failed = [attempt("failed", partial(vitals.failed, each), False) for each in run.trainings]
    judged = {fault.slug: [judge(fault, training, mode) for training in run.trainings] for fault in chosen}
    if mode == "check" and (run.facts.get("ended") or {}).get("how") == "stopped":
        several = len(run.trainings) > 1
        judged = {slug: [_of_part(finding, several) for finding in each] for slug, each in judged.items()}
    findings = [across.settle(run.trainings, judged[fault.slug], failed) if run.trainings else _untrained(fault) for fault in chosen]
    main = across.main_training(run.trainings)
    diagnosis.findings = triage.arrange(findings, {fault.slug: fault.explains for fault in chosen})
    diagnosis.verdict = triage.verdict(diagnosis.findings, _did_fail(run, main, failed))
    if run.trainings or mode == "read":  # where nothing was trained no experiment has anything to work on
        diagnosis.next_step = triage.next_step(diagnosis, chosen, mode, str(run.facts.get("script", "SCRIPT")))
    shown = [[each[i] for each in judged.values()] for i in range(len(run.trainings))]
    diagnosis.trainings = [attempt("trainings", partial(_summary, *pair), {}) for pair in zip(run.trainings, shown, strict=True)]
    if main is None:
        diagnosis.notes.append("nothing was trained: no backward was seen")
    else:
        diagnosis.experiments = [dataclasses.asdict(experiment) for experiment in main.experiments.values()]
        diagnosis.vitals = attempt("vitals", lambda: vitals.vitals(run, main), {})
        diagnosis.curve = attempt("curve", lambda: vitals.curve(main), [])
    unknown: tuple[BiggerMachine, list[dict[str, Any]]] = (diagnosis.bigger_machine, [])
    diagnosis.bigger_machine, diagnosis.conditions = attempt("machine", lambda: machine.answer(diagnosis, main), unknown)
    return diagnosis


class _Attempt:
    """Compute a figure; an error of ours in it costs the figure, not the diagnosis."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis

    def __call__(self, what: str, function: Callable[[], T], default: T) -> T:
        try:
            with np.errstate(all="ignore"):
                return function()
        except Exception as error:
            self.diagnosis.notes.append(f"broke: {what}: {type(error).__name__}: {error}")
            return default


def _did_fail(run: Run, main: Training | None, failed: Sequence[bool]) -> bool:
    return main is None or any(each is main and bad for each, bad in zip(run.trainings, failed, strict=True))


def choose(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Fault]:
    """Return the faults that `select` names (all where empty) and `ignore` does not, in the order of codes."""
    wanted = _named(select) if select else set(faults())
    return [fault for slug, fault in faults().items() if slug in wanted - _named(ignore)]


def _named(names: Sequence[str]) -> set[str]:
    families = {fault.family for fault in faults().values()}
    found: set[str] = set()
    for name in names:
        if name.upper() in families:
            found |= {slug for slug, fault in faults().items() if fault.family == name.upper()}
        else:
            found.add(find_fault(name).slug)
    return found


def judge(fault: Fault, training: Training, mode: Mode = "run") -> Finding:
    """Ask one fault about one training; where several optimisers alternate, about each of them, and keep the clearest answer."""
    answers = [_judge(fault, view, mode) for view in across.views(training)]
    return max(answers, key=across.weight)


def strength(fault: Fault, training: Training) -> float:
    """Return how strongly a fault shows in a training, in [0, 1]; 0 where it is absent or unknown. For the bench's calibration."""
    found = [_ask(fault, view) for view in across.views(training) if _missing(fault, view) is None]
    return max((each.strength for each in found if isinstance(each, Detection)), default=0.0)


def _judge(fault: Fault, training: Training, mode: Mode) -> Finding:
    missing = _missing(fault, training)
    if missing is not None:
        return _finding(fault, training, status="unknown", missing=_remedy(missing))
    answer = _ask(fault, training)
    if isinstance(answer, SignalMissing):
        return _finding(fault, training, status="unknown", missing=_remedy(answer.signal, answer.remedy))
    if isinstance(answer, Exception):
        return _finding(fault, training, status="broke", missing=f"{type(answer).__name__}: {answer}")
    return _finding(fault, training) if answer is None else _told(fault, training, answer, mode)


def _missing(fault: Fault, training: Training) -> str | None:
    return next((name for name in fault.needs if not training.has(name)), None)


def _ask(fault: Fault, training: Training) -> Detection | Exception | None:
    try:
        with np.errstate(all="ignore"):
            return fault.detect(training)
    except Exception as error:
        return error


def _told(fault: Fault, training: Training, seen: Detection, mode: Mode) -> Finding:
    probability = confidence.probability(fault.slug, seen.strength)
    if min(seen.strength, probability) < SUSPECTED:
        return _finding(fault, training)
    severity = _lower(fault.severity, seen.severity or fault.severity)
    return _finding(
        fault,
        training,
        status="present" if probability >= PRESENT else "suspected",
        severity="advice" if fault.family == "CUR" and mode != "read" else severity,
        probability=round(probability, 4),
        evidence=tuple(_plain(item) for item in seen.evidence),
        fix=seen.fix or fault.fix,
        where=seen.where,
        gain={name: float(f"{value:.4g}") for name, value in seen.gain.items() if np.isfinite(value)},
    )


def _finding(fault: Fault, training: Training, **fields: Any) -> Finding:
    common = {"severity": fault.severity, "fix": fault.fix, "bigger_machine": fault.bigger_machine, "training": training.index}
    return Finding(fault.code, fault.slug, fault.title, fault.family, **{**common, **fields})


def _of_part(finding: Finding, several: bool) -> Finding:
    """Take back what only a whole run can show, where the run was ended early.

    Args:
        several: whether the script trains more than once: then no training is the last, and a present fault does not count either.
    """
    if seen_in(finding.slug, "check") or not (several or finding.status == "absent"):
        return finding
    return dataclasses.replace(finding, status="unknown", missing="the whole run: lossdoctor run watches it")


def _untrained(fault: Fault) -> Finding:
    return _finding(fault, Training(), status="unknown", missing="nothing was trained")


def _lower(one: Severity, other: Severity) -> Severity:
    return min(one, other, key=SEVERITIES.index)


def _plain(item: Evidence) -> Evidence:
    """Turn numpy scalars into plain values, which JSON knows."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(item).items() if name != "steps"}
    return Evidence(steps=(int(item.steps[0]), int(item.steps[1])), **plain)


def _remedy(name: str, remedy: str = "") -> str:
    known = SIGNALS[name].remedy if name in SIGNALS else "let `lossdoctor run --workup full` measure it"
    return f"{name}: {remedy or known}"


def _summary(training: Training, findings: list[Finding]) -> dict[str, Any]:
    present = [finding.slug for finding in findings if finding.status == "present"]
    return {"index": training.index, "phase_of": training.phase_of, **vitals.short(training), "present": present}
