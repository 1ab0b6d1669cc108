"""Trials that were made of a run: `trials.json` in its folder, and their place in a diagnosis."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.store import restore

FILE = "trials.json"
FORMAT = 1


def write_trials(folder: Path, trials: Mapping[str, Any], minimal: list[str] | None) -> None:
    """Keep trials beside those that the folder holds already; one of the same fault is replaced.

    Args:
        folder: of the run.
        trials: by slug of the fault, as `trial.as_dict` gives them.
        minimal: slugs of the smallest set that restores the run, or None where it was not looked for.
    """
    kept = read_trials(folder)
    value = {
        "format": FORMAT,
        "trials": {**kept.get("trials", {}), **trials},
        "minimal": kept.get("minimal") if minimal is None else minimal,
    }
    (folder / FILE).write_text(json.dumps(_plain(value)), encoding="utf-8")


def read_trials(folder: Path) -> dict[str, Any]:
    """Return what `write_trials` kept; empty where there is nothing, or nothing readable."""
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return restore(value) if isinstance(value, dict) and value.get("format") == FORMAT else {}


def attach(diagnosis: Diagnosis, folder: Path) -> None:
    """Give the findings of a diagnosis the trials that were made of them."""
    kept = read_trials(folder)
    trials = kept.get("trials", {})
    diagnosis.findings = [
        dataclasses.replace(finding, confirmed=trials[finding.slug]["verdict"], trial=trials[finding.slug])
        if finding.slug in trials and finding.status in ("present", "suspected")
        else finding
        for finding in diagnosis.findings
    ]


def _plain(value: Any) -> Any:
    """Turn numbers that are not finite into the strings of the record."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
