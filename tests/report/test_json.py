"""The report as JSON: it fits its schema, holds all of the diagnosis, and reads back."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest
from diagnoses import diagnoses, failing, patient
from hypothesis import given

from lossdoctor.core.diagnosis import Diagnosis, Evidence, Finding
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.report.json import dumps, from_json, to_json

SCHEMA = json.loads(resources.files("lossdoctor.report").joinpath("schema/report-1.json").read_text())


def closed(schema: Any) -> Any:
    """Forbid what the schema does not name, so that a key added to the report must be added to the schema."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: value if name in ("if", "then", "else") else closed(value) for name, value in schema.items()}
    return made | {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else made


CLOSED = jsonschema.Draft202012Validator(closed(SCHEMA))


def same(one: Any, other: Any) -> bool:
    """Compare values of which some are NaN."""
    return repr(one) == repr(other)


def test_the_schema_is_a_schema_and_closing_it_forbids_unknown_keys() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert not list(CLOSED.iter_errors(to_json(failing())))
    assert list(CLOSED.iter_errors(to_json(failing()) | {"new": 1}))


@patient
@given(diagnoses())
def test_every_diagnosis_fits_the_schema_and_reads_back_the_same(diagnosis: Diagnosis) -> None:
    text = dumps(diagnosis)
    report = json.loads(text, parse_constant=pytest.fail)  # NaN or Infinity would be no JSON
    assert not [error.message for error in CLOSED.iter_errors(report)]
    assert same(from_json(report), diagnosis)
    assert report["healthy"] == (report["verdict"]["slug"] == "healthy")
    assert [finding["slug"] for finding in report["findings"]] == [finding.slug for finding in diagnosis.findings]


def test_the_verdict_is_the_finding_with_its_code_and_probability() -> None:
    verdict = to_json(failing())["verdict"]
    assert verdict == {"code": "LOP001", "slug": "zero-grad-missing", "title": "Gradients pile up", "probability": 0.987}


@pytest.mark.parametrize("slug", ["healthy", "undetermined"])
def test_without_a_fault_the_verdict_has_neither_code_nor_probability(slug: str) -> None:
    verdict = to_json(Diagnosis(verdict=slug))["verdict"]
    assert (verdict["code"], verdict["slug"], verdict["probability"]) == (None, slug, None)


def test_numbers_that_are_not_finite_are_strings_everywhere_and_come_back_as_numbers() -> None:
    seen = Evidence("loss", (3, 4), math.inf, -math.inf)
    diagnosis = Diagnosis(vitals={"last_loss": math.nan}, findings=[Finding("A", "a", "A", "A", evidence=(seen,))], curve=[(0, math.nan)])
    report = to_json(diagnosis)
    assert report["vitals"]["last_loss"] == "nan"
    assert report["curve"] == [[0, "nan"]]
    back = from_json(report)
    assert back.findings[0].evidence[0] == seen
    assert math.isnan(back.curve[0][1])


def test_numpy_values_and_paths_become_plain() -> None:
    facts = {"count": np.int64(3), "share": np.float32(0.5), "list": np.array([1.0, np.nan]), "set": {1}, "type": float}
    plain = to_json(Diagnosis(run=facts))["run"]
    assert plain == {"count": 3, "share": 0.5, "list": [1.0, "nan"], "set": [1], "type": "<class 'float'>"}


def test_a_report_with_keys_of_a_later_version_still_reads() -> None:
    report = to_json(failing())
    report["later"] = {}
    report["findings"][0]["later"] = 1
    assert same(from_json(report), failing())


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({}, "it is no lossdoctor report"),
        ({"schema": "lossdoctor/report/9"}, "another version"),
        ([], "it is no lossdoctor report"),
        ({"schema": "lossdoctor/report/1"}, "damaged"),
        ({**to_json(failing()), "findings": [{"slug": 1}]}, "damaged"),
        ({**to_json(failing()), "verdict": None}, "damaged"),
    ],
)
def test_what_is_no_report_is_refused_in_words(report: Any, says: str) -> None:
    with pytest.raises(LossdoctorError, match=says):
        from_json(report)
