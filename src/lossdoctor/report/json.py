"""The report as JSON, format `lossdoctor/report/1` (schema/report-1.json), and back.

JSON has no NaN and no infinity: wherever a number is not finite, the strings "nan", "inf" and "-inf" stand for it, as in
the run folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lossdoctor import __version__
from lossdoctor.core.diagnosis import BiggerMachine, Diagnosis, Evidence, Finding
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Location
from lossdoctor.core.store import restore
from lossdoctor.report import words

SCHEMA = "lossdoctor/report/1"


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Turn a diagnosis into the report: plain values only, ready for `json.dumps`.

    Example:
        >>> to_json(Diagnosis())["verdict"]["slug"]
        'healthy'
    """
    report = {
        "schema": SCHEMA,
        "version": __version__,
        "verdict": _verdict(diagnosis),
        "healthy": diagnosis.healthy,
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "bigger_machine": {**dataclasses.asdict(diagnosis.bigger_machine), "conditions": diagnosis.conditions},
        "experiments": [_without_examples(each) for each in diagnosis.experiments],
        "next_step": diagnosis.next_step,
        "vitals": diagnosis.vitals,
        "notes": diagnosis.notes,
        "run": diagnosis.run,
        "trainings": diagnosis.trainings,
        "curve": diagnosis.curve,
    }
    plain: dict[str, Any] = _plain(report)
    return plain


def _without_examples(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the user's own examples: reports are passed on, and only a page that was asked for shows them."""
    facts = experiment.get("facts")
    if not isinstance(facts, Mapping) or "samples" not in facts:
        return dict(experiment)
    return {**experiment, "facts": {name: value for name, value in facts.items() if name != "samples"}}


def dumps(diagnosis: Diagnosis) -> str:
    """Write the report as JSON text, two spaces deep, ASCII only.

    Example:
        >>> dumps(Diagnosis()).splitlines()[1].strip()
        '"schema": "lossdoctor/report/1",'
    """
    return json.dumps(to_json(diagnosis), indent=2, allow_nan=False) + "\n"


def from_json(report: Mapping[str, Any]) -> Diagnosis:
    """Read a report back, also one that a later version has added keys to.

    Args:
        report: what `to_json` returned, or `json.load` of a written report.

    Raises:
        LossdoctorError: where it is no report, or one of another format.

    Example:
        >>> from_json(to_json(Diagnosis(next_step="lossdoctor check train.py"))).next_step
        'lossdoctor check train.py'
    """
    _check_schema(report)
    try:
        values = restore(dict(report))
        return Diagnosis(
            verdict=values["verdict"]["slug"],
            findings=[read_finding(finding) for finding in values["findings"]],
            bigger_machine=_read_machine(values["bigger_machine"]),
            conditions=values["bigger_machine"]["conditions"],
            curve=[(int(step), float(loss)) for step, loss in values["curve"]],
            **{name: values[name] for name in ("vitals", "experiments", "next_step", "notes", "run", "trainings")},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LossdoctorError(f"this report is damaged ({type(error).__name__}: {error}); render the run again") from error


def _check_schema(report: Mapping[str, Any]) -> None:
    found = report.get("schema") if isinstance(report, Mapping) else None
    if found != SCHEMA:
        newer = isinstance(found, str) and found.startswith("lossdoctor/report/")
        hint = "another version of lossdoctor wrote it" if newer else "it is no lossdoctor report"
        raise LossdoctorError(f"expected a report of format {SCHEMA!r}, found {found!r}: {hint}", status=2)


def _verdict(diagnosis: Diagnosis) -> dict[str, Any]:
    finding = next((each for each in diagnosis.present if each.slug == diagnosis.verdict), None)
    if finding is None:
        return {"code": None, "slug": diagnosis.verdict, "title": words.verdict_title(diagnosis), "probability": None}
    return {"code": finding.code, "slug": finding.slug, "title": finding.title, "probability": finding.probability}


def _finding(finding: Finding) -> dict[str, Any]:
    return dataclasses.asdict(finding)


def read_finding(values: Mapping[str, Any]) -> Finding:
    """Read one finding of a report back."""
    names = {field.name for field in dataclasses.fields(Finding)}
    kept = {name: value for name, value in values.items() if name in names}
    kept["evidence"] = tuple(_read_evidence(item) for item in values["evidence"])
    kept["explains"] = tuple(values["explains"])
    kept["where"] = Location(values["where"]["file"], values["where"]["line"]) if values["where"] else None
    kept["bigger_machine"] = _read_machine(values["bigger_machine"])
    return Finding(**kept)


def _read_evidence(values: dict[str, Any]) -> Evidence:
    first, last = values["steps"]
    return Evidence(values["signal"], (first, last), values["seen"], values["expected"], values["note"])


def _read_machine(values: dict[str, Any]) -> BiggerMachine:
    return BiggerMachine(values["helps"], values["why"])


def _plain(value: Any) -> Any:
    """Keep what JSON knows; tuples become lists, numbers that are not finite strings, anything else its text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return str(value)
