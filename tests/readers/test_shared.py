"""Real logs beside the project: each is read, none that is healthy raises an alarm, most get what a careful reader says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.readers import read

SHARED = Path(__file__).parents[3] / "shared"
INDEX = SHARED / "logs" / "index.json"
ENTRIES: list[dict[str, Any]] = json.loads(INDEX.read_text()) if INDEX.is_file() else []

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not ENTRIES, reason="the real logs are not beside the project")]
LEAST_HITS = 0.85


def means() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("score_logs", SHARED / "score_logs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.MEANS
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
def test_real_log_is_read_and_a_healthy_one_raises_no_alarm(entry: dict[str, Any]) -> None:
    diagnosis = read(SHARED / "logs" / "files" / entry["file"])
    assert not [finding.slug for finding in diagnosis.findings if finding.status == "broke"]
    if entry["label"] == "healthy":
        assert not [finding.slug for finding in diagnosis.present if finding.severity != "advice"]


def test_most_real_logs_get_what_a_careful_reader_says() -> None:
    words, hits, judged = means(), 0, 0
    for entry in ENTRIES:
        if entry["label"] in ("healthy", "other"):
            continue
        labels = [entry["label"], *entry["secondary"]]
        wanted = {slug for label in labels for slug in words.get(label, "").split()}
        wanted |= {"healthy"} if {"healthy", "other"} & set(entry["secondary"]) else set()
        judged += 1
        hits += read(SHARED / "logs" / "files" / entry["file"]).verdict in wanted
    assert hits >= LEAST_HITS * judged
