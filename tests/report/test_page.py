"""The page of a fault."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lossdoctor.core.fault import HEADINGS, Fault, faults
from lossdoctor.report import page


@pytest.mark.parametrize("fault", faults().values(), ids=lambda fault: fault.code)
def test_a_page_holds_all_of_its_fault(fault: Fault) -> None:
    text = page.markdown(fault)
    assert text.startswith(f"# {fault.code} {fault.slug}: {fault.title}\n\n{page.summary(fault)}")
    for heading in HEADINGS:
        assert f"## {heading}\n\n{fault.section(heading)}" in text
    for example in fault.examples:
        assert (f"- {example.note}" in text) == (example.kind == "known miss")


@pytest.mark.parametrize("fault", faults().values(), ids=lambda fault: fault.code)
@pytest.mark.parametrize(("terminal", "encoding"), [(True, "utf-8"), (True, "ascii"), (False, "ascii"), (False, "utf-8")])
def test_a_page_prints_everywhere(fault: Fault, terminal: bool, encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    page.render(fault, Console(file=stream, width=80, force_terminal=terminal))
    stream.flush()
    assert fault.slug in stream.buffer.getvalue().decode(encoding)


def test_the_index_lists_every_fault_once_with_a_link() -> None:
    lines = [line for line in page.index().splitlines() if line.startswith("| [")]
    assert [line.split("`")[1] for line in lines] == list(faults())
    assert all(f"]({fault.code}.md)" in line for fault, line in zip(faults().values(), lines, strict=True))
