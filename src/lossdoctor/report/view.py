"""What a report shows of a diagnosis, in which words and order; the renderers lay it out."""

from __future__ import annotations

import linecache
from contextlib import suppress
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import UNDETERMINED, Diagnosis, Finding
from lossdoctor.report import words

_SHOWN = 0.01  # of the time: smaller parts are in the JSON report
_BUSY = 0.25  # starting value: on idle cores .00 to .05 of the working time is spent queueing, beside one busy loop per core .4 up
_MEGABYTE = 1e6  # less memory is not worth a word
_PARTS = {"waiting": "waiting for data", "loss": "loss and between", "optimiser": "optimiser", "script": "the script between steps"}


def headline(diagnosis: Diagnosis) -> str:
    """Say the verdict in one line: title with probability, or the honest words where no fault is the verdict.

    Example:
        >>> headline(Diagnosis())
        'Healthy: no known fault was found'
    """
    finding = diagnosis.finding(diagnosis.verdict)
    if finding is not None:
        return f"{words.clean(finding.title)} ({sure(finding)})"
    if diagnosis.verdict == UNDETERMINED:
        return "Nothing was trained" if not diagnosis.trainings else "The run fails, and no known fault explains it yet"
    if not diagnosis.healthy:
        return words.verdict_title(diagnosis)
    blind = diagnosis.findings and all(each.status in ("unknown", "broke") for each in diagnosis.findings)
    if blind:
        return "No fault could be looked for"
    doubts = sum(each.severity != "advice" for each in suspected(diagnosis))
    if doubts:
        return f"No fault was found for certain, {doubts} {'is' if doubts == 1 else 'are'} suspected"
    return "Healthy: no known fault was found"


def sure(finding: Finding) -> str:
    """Say how sure a finding is, with its trial where there was one."""
    told = f", {words.clean(finding.confirmed)} by a trial" if finding.confirmed in ("confirmed", "refuted") else ""
    unclear = ", a trial was unclear" if finding.confirmed == "unclear" else ""
    return words.likelihood(finding.probability) + told + unclear


def gain(finding: Finding) -> str:
    """Say what mending a finding would save; empty where that is not known.

    Example:
        >>> gain(Finding("PIP001", "input-bottleneck", "The run waits for data", "PIP", gain={"time": 0.7}))
        'mending it would save 70% of a step'
    """
    share, size = finding.gain.get("time", 0.0), finding.gain.get("memory", 0.0)
    saved = [f"{words.percent(share)} of a step"] if share >= _SHOWN else []
    saved += [words.size(size)] if size >= _MEGABYTE else []
    return f"mending it would save {' and '.join(saved)}" if saved else ""


def level(diagnosis: Diagnosis) -> str:
    """Return what the verdict is drawn as: `error`, `warning`, `healthy` or `undetermined`."""
    finding = diagnosis.finding(diagnosis.verdict)
    if finding is not None:
        return finding.severity
    return UNDETERMINED if not headline(diagnosis).startswith("Healthy") else diagnosis.verdict


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Return the present errors and warnings that nothing else explains, the verdict first."""
    found = [each for each in diagnosis.present if each.severity != "advice" and each.explained_by is None]
    return sorted(found, key=lambda each: each.slug != diagnosis.verdict)


def explained(diagnosis: Diagnosis, cause: Finding) -> list[Finding]:
    """Return what a cause accounts for, in the order of the report."""
    slugs = set(cause.explains)
    return [each for each in diagnosis.findings if each.status == "present" and (each.slug in slugs or each.explained_by == cause.slug)]


def advice(diagnosis: Diagnosis) -> list[Finding]:
    """Return the present findings that are advice and that no cause explains."""
    return [each for each in diagnosis.present if each.severity == "advice" and each.explained_by is None]


def suspected(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that are neither present nor absent, and that no cause explains."""
    return [each for each in diagnosis.findings if each.status == "suspected" and each.explained_by is None]


def with_status(diagnosis: Diagnosis, status: str) -> list[Finding]:
    """Return the findings of one status."""
    return [each for each in diagnosis.findings if each.status == status]


def judged(diagnosis: Diagnosis) -> str:
    """Say how many faults were looked for, and how many could not be."""
    absent, unknown = len(with_status(diagnosis, "absent")), len(with_status(diagnosis, "unknown"))
    if not diagnosis.trainings or not absent + unknown:
        return ""  # where nothing was trained nothing is judged
    told = f"{absent} {_faults(absent)} ruled out"
    return f"{told}, {unknown} not judged for want of a measurement" if unknown else told


def _faults(count: int) -> str:
    return "fault" if count == 1 else "faults"


def vitals(diagnosis: Diagnosis) -> str:
    """Say the figures of the run in one line; what was not measured is left out.

    Example:
        >>> vitals(Diagnosis(vitals={"steps": 600, "first_loss": 2.31, "last_loss": 0.02, "wait_share": 0.09}))
        '600 steps, loss 2.31 to 0.02, waiting 9%'
    """
    figures = diagnosis.vitals
    parts = [_steps(figures), _loss(figures)]
    if _is_number(figures.get("best_validation_loss")):
        parts.append(f"best validation loss {words.number(figures['best_validation_loss'])}")
    if _is_number(figures.get("best_validation_accuracy")):
        parts.append(f"best validation accuracy {figures['best_validation_accuracy']:.1%}")
    if _is_number(figures.get("wait_share")):
        parts.append(f"waiting {words.percent(figures['wait_share'])}")
    if _is_number(figures.get("overhead_share")):
        parts.append(f"watching took {words.percent(figures['overhead_share'])}")
    return ", ".join(part for part in parts if part)


def time(diagnosis: Diagnosis) -> str:
    """Say where the time of the steps went, the largest part first; and that the machine was busy, where it was.

    Example:
        >>> time(Diagnosis(vitals={"time_shares": {"waiting": 0.7, "forward": 0.2, "backward": 0.1}, "queued_share": 0.4}))
        'waiting for data 70%, forward 20%, backward 10%; the machine was busy with other work: 40% of the time queueing for a core'
    """
    shares = {name: share for name, share in (diagnosis.vitals.get("time_shares") or {}).items() if _is_number(share)}
    ordered = sorted(((share, name) for name, share in shares.items() if share >= _SHOWN), reverse=True)
    told = ", ".join(f"{_PARTS.get(name, words.clean(name))} {words.percent(share)}" for share, name in ordered)
    queued: Any = diagnosis.vitals.get("queued_share")
    if not _is_number(queued) or not queued >= _BUSY:
        return told
    busy = f"the machine was busy with other work: {words.percent(queued)} of the time queueing for a core"
    return f"{told}; {busy}" if told else busy


def _steps(figures: dict[str, Any]) -> str:
    if not _is_number(figures.get("steps")):
        return ""
    text = f"{figures['steps']:,} {'step' if figures['steps'] == 1 else 'steps'}"
    if _is_number(figures.get("step_seconds")):
        text += f" of {words.seconds(figures['step_seconds'])}"
    return f"{text} in {figures['trainings']} trainings" if figures.get("trainings", 1) > 1 else text


def _loss(figures: dict[str, Any]) -> str:
    if not _is_number(figures.get("first_loss")):
        return ""
    text = f"loss {words.number(figures['first_loss'])}"
    if _is_number(figures.get("expected_first_loss")):
        text += f" (guessing gives {words.number(figures['expected_first_loss'])})"
    return f"{text} to {words.number(figures['last_loss'])}" if _is_number(figures.get("last_loss")) else text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def place(finding: Finding, *, source: bool = False) -> str:
    """Name the line of the user's script, relative to the working directory, with the line itself where it was asked for.

    Args:
        source: read the line from the file; left out otherwise, since reports are passed on.
    """
    if finding.where is None:
        return ""
    line = linecache.getline(finding.where.file, finding.where.line).strip() if source else ""
    named = f"{_relative(finding.where.file)}:{finding.where.line}"
    return words.clean(named) + (f": {words.clean(line)}" if line else "")


def _relative(file: str) -> str:
    with suppress(ValueError, OSError):
        return str(Path(file).relative_to(Path.cwd()))
    return file
