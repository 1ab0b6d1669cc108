"""Examples on the page of a check: drawn as they were, escaped, and kept out of the JSON report."""

from __future__ import annotations

import base64
import io
import re

import pytest
from diagnoses import HOSTILE
from PIL import Image

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import html
from lossdoctor.report.json import dumps
from lossdoctor.report.samples import png, samples

PIXELS = {"height": 2, "width": 3, "channels": 1, "pixels": "00ff80102030"}


def looked(*examples: object) -> Diagnosis:
    facts = {"inputs": [], "samples": list(examples)}
    return Diagnosis(experiments=[{"name": "look", "status": "done", "seconds": 0.1, "facts": facts}])


def test_an_image_comes_out_as_it_was() -> None:
    data = base64.b64decode(png(PIXELS).split(",")[1])
    assert list(Image.open(io.BytesIO(data)).tobytes()) == [0, 255, 128, 16, 32, 48]


def test_examples_are_on_the_page_and_fetch_nothing() -> None:
    page = html.page(looked({"target": "7", "image": PIXELS}, {"target": "1", "row": "0.5, 2"}))
    assert "target 7" in page
    assert "0.5, 2" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_examples_stay_text(text: str) -> None:
    page = html.page(looked({"target": text, "row": text}))
    assert "<script" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize("example", [3, {}, {"target": "1", "image": {}}, {"target": "1", "image": {**PIXELS, "channels": 2}}])
def test_what_another_version_wrote_is_left_out(example: object) -> None:
    assert samples(looked(example)) == []


def test_examples_stay_out_of_the_json_report() -> None:
    diagnosis = looked({"target": "1", "row": "0.5, 2"})
    assert "0.5, 2" not in dumps(diagnosis)
    assert diagnosis.experiments[0]["facts"]["samples"]
