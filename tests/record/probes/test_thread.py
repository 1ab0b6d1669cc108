"""The thread's clocks as the system tells them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lossdoctor.record.probes import thread


def test_computing_counts_and_sleeping_does_not() -> None:
    before, _ = thread.thread_times()
    time.sleep(0.2)
    slept, _ = thread.thread_times()
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    assert slept - before < 0.05
    assert thread.thread_times()[0] - slept == pytest.approx(0.1, abs=0.02)


def test_without_the_file_queueing_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "_SCHEDSTAT", "/no/such/file")
    assert math.isnan(thread.thread_times()[1])


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the system does not tell how long a thread queues")
def test_another_process_on_the_same_core_is_seen() -> None:
    cores = os.sched_getaffinity(0)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        one = {next(iter(cores))}
        os.sched_setaffinity(other.pid, one)
        os.sched_setaffinity(0, one)
        before = thread.thread_times()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        cpu, queued = (after - first for after, first in zip(thread.thread_times(), before, strict=True))
        assert queued / (cpu + queued) > 0.25
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.wait()
