"""Resident memory as the system tells it."""

import psutil
import pytest

from lossdoctor.record.probes import memory


def test_agrees_with_psutil():
    assert memory.resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)


def test_grows_by_what_is_held():
    before = memory.resident_bytes()
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])
    assert memory.resident_bytes() - before > 48 << 20


def test_without_proc_psutil_is_asked(monkeypatch):
    monkeypatch.setattr(memory, "_STATM", "/no/such/file")
    assert memory.resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
