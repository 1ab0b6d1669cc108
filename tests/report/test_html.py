"""The notebook's card and the HTML file: escaped, without script or network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from diagnoses import HOSTILE, diagnoses, failing, patient
from hypothesis import given

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.report import html, notebook


class Reader(HTMLParser):
    """Collect tags, attributes and text of a page; check that tags are closed in order."""

    empty = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.empty:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


@patient
@given(diagnoses())
def test_a_notebook_card_is_static_and_well_formed(diagnosis: Diagnosis) -> None:
    page = Reader(notebook.html(diagnosis))
    assert not page.open
    assert set(page.tags) <= {"div", "table", "tr", "td", "b", "svg", "polyline"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]


def test_a_notebook_card_says_what_the_terminal_says() -> None:
    text = Reader(notebook.html(failing())).text
    for part in (
        "Gradients pile up (almost certain, 99%)",
        "train.py:31",
        "not_reset 1 (steps 1-599), expected 0",
        "A bigger machine would not help",
    ):
        assert part in text
    assert "<svg" in notebook.html(failing())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_every_place(text: str) -> None:
    diagnosis = failing()
    diagnosis.notes, diagnosis.next_step, diagnosis.run = [text], text, {"script": text}
    diagnosis.curve = []
    finding = diagnosis.findings[0]
    finding.title = finding.fix = finding.missing = text
    for page in (notebook.html(diagnosis), html.page(diagnosis)):
        assert "script" not in Reader(page).tags
        assert "\x1b" not in page
        assert "\u202e" not in page
        page.encode("utf-8")


def test_the_file_opens_offline_and_holds_every_finding(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    html.write(failing(), path)
    page = Reader(path.read_text(encoding="utf-8"))
    assert not page.open
    loaded = [value for name, value in page.attributes if name in ("src", "href", "action", "data", "srcset", "poster")]
    assert not loaded
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    for finding in failing().findings:
        assert f"{finding.code} {finding.slug}" in page.text
    for part in ("memorises a batch", "not known", "final_loss: 0.004", "activations: watch the run"):
        assert part in page.text
    assert "plotly" in path.read_text(encoding="utf-8").lower()


def test_plotly_comes_only_with_a_curve() -> None:
    diagnosis = failing()
    diagnosis.curve = []
    assert len(html.page(diagnosis)) < 50_000
    assert "<script" not in html.page(diagnosis)


def test_a_known_fault_brings_its_page() -> None:
    diagnosis = failing()
    diagnosis.curve = []
    text = Reader(html.page(diagnosis)).text
    assert "About zero-grad-missing" in text
    assert "When this is wrong" in text


def test_an_unwritable_path_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(LossdoctorError, match=re.escape(f"cannot write the report to {tmp_path}")):
        html.write(Diagnosis(), tmp_path)


def test_curves_are_thinned_and_keep_their_extremes() -> None:
    curve = [(step, float(step % 97)) for step in range(10_000)] + [(10_000, 1e6), (10_001, -1e6)]
    thinned = html.thin(curve, 200)
    assert len(thinned) <= 200
    assert set(thinned) <= set(curve)
    assert (10_000, 1e6) in thinned
    assert (10_001, -1e6) in thinned
    assert thinned == sorted(thinned)
