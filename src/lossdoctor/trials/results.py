"""Trials that were made of a run: `trials.json` in its folder, and their place in a diagnosis."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import UNDETERMINED, Diagnosis, Finding
from lossdoctor.core.store import restore
from lossdoctor.report.json import read_finding

FILE = "trials.json"
FORMAT = 1


def write_trials(folder: Path, found: Mapping[str, Any]) -> None:
    """Keep what trials found beside what the folder holds already; a trial of the same fault is replaced.

    Args:
        folder: of the run.
        found: `trials`, `surfaced` and `untreated` by slug; `needed`, the slugs of the smallest set that restores the run.
    """
    kept = read_trials(folder)
    merged = {name: {**kept.get(name, {}), **found.get(name, {})} for name in ("trials", "surfaced", "untreated")}
    value = {"format": FORMAT, **merged, "needed": found.get("needed", [])}
    (folder / FILE).write_text(json.dumps(_plain(value)), encoding="utf-8")


def read_trials(folder: Path) -> dict[str, Any]:
    """Return what `write_trials` kept; empty where there is nothing, or nothing readable."""
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return restore(value) if isinstance(value, dict) and value.get("format") == FORMAT else {}


def attach(diagnosis: Diagnosis, folder: Path) -> None:
    """Give a diagnosis the trials that were made of the run: to each finding its own, and the findings that showed only under treatment.

    Where nothing else was present, a suspicion that its trial confirms is: the trial decides what watching could not.
    """
    kept = read_trials(folder)
    if not kept:
        return
    surfaced = {slug: _surfaced(value) for slug, value in kept["surfaced"].items()}
    findings = [surfaced.get(each.slug, each) if each.status != "present" else each for each in diagnosis.findings]
    findings = [_tried(each, kept["trials"]) for each in findings]
    if diagnosis.verdict == UNDETERMINED:
        settled = [each.slug for each in findings if each.status == "suspected" and each.confirmed == "confirmed"]
        findings = [dataclasses.replace(each, status="present") if each.slug in settled else each for each in findings]
        # The first that is needed; what showed under its treatment comes after it.
        findings.sort(key=lambda each: each.slug not in settled)
        diagnosis.verdict = next((slug for slug in (*kept["needed"], *settled) if slug in settled), UNDETERMINED)
        diagnosis.notes += [f"{slug} was suspected, and its trial decided" for slug in settled]
    diagnosis.findings = sorted(findings, key=lambda each: each.status != "present")
    diagnosis.notes += [f"no trial of {slug}: {reason}" for slug, reason in kept["untreated"].items()]
    if len(kept["needed"]) > 1:
        diagnosis.notes.append(f"the smallest set of treatments that restores the run is that of {', '.join(kept['needed'])}")


def _tried(finding: Finding, trials: Mapping[str, Any]) -> Finding:
    trial = trials.get(finding.slug)
    if trial is None or finding.status not in ("present", "suspected"):
        return finding
    return dataclasses.replace(finding, confirmed=trial["verdict"], trial=trial)


def _surfaced(value: Mapping[str, Any]) -> Finding:
    """Return a finding that showed only under treatment, told as such."""
    finding = read_finding(value["finding"])
    if not finding.evidence:
        return finding
    first, note = finding.evidence[0], f"seen under {' and '.join(value['under'])}"
    first = dataclasses.replace(first, note=f"{note}; {first.note}" if first.note else note)
    return dataclasses.replace(finding, evidence=(first, *finding.evidence[1:]))


def _plain(value: Any) -> Any:
    """Turn numbers that are not finite into the strings of the record."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
