"""The life of a record: from arming, through the first step that makes its folder, to the end that undoes every patch."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.record.writer import Writer

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer
    from lossdoctor.record.seams import Seams

_MOST_NOTES = 100


class Recorder:
    """Hold one process's record; made by `arm`.

    Args:
        out: the folder of all runs; resolved at once, since scripts change their working directory.
        script: as the user typed it.
        budget: share of the CPU time that costly probes may take.
        max_steps: the recording (not the script) ends after so many steps of one optimiser.
        private: what a repetition needs: argv, working directory, environment.
        facts: what else holds for the whole run.
    """

    def __init__(
        self,
        out: Path,
        script: str,
        budget: float = 0.01,
        max_steps: int | None = None,
        private: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        now = datetime.now().astimezone()
        head = {
            "script": script,
            "started": now.isoformat(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "torch": None,
            "platform": platform.platform(),
            "cores": _cores(),
            "memory_bytes": _memory(),
            "budget": budget,
            **_rank(),
            **(facts or {}),
        }
        out = Path(os.path.abspath(out))
        self._head: dict[str, Any] = head
        self._writer: Writer | None = Writer(out, _free_name(out, now), head, private)
        self._lines: list[Mapping[str, Any]] = []
        self._notes = 0
        self._budget = budget
        self._max_steps = max_steps
        self._pid = os.getpid()
        self._began = time.perf_counter()
        self._stopped = False
        self._observer: Observer | None = None
        self._seams: Seams | None = None
        self.then: Callable[[], object] = lambda: None  # called once the seams are in place

    @classmethod
    def silent(cls) -> Recorder:
        """Return a recorder that writes nothing."""
        recorder = cls(Path(os.devnull), "")
        recorder._writer = None
        return recorder

    @property
    def folder(self) -> Path | None:
        """The run folder; None until the first step has made it."""
        return self._writer.folder if self._writer is not None and self._writer.made else None

    @property
    def started(self) -> bool:
        """Tell whether a step or a backward was seen and written."""
        return self.folder is not None

    @property
    def passes(self) -> int:
        """How many validation passes were seen to their end."""
        return 0 if self._observer is None else self._observer.passes.count

    @property
    def captures(self) -> Any:
        """What a replay needs (`record.capture.Captures`); None where torch was never watched."""
        return None if self._observer is None else self._observer.capture.held

    def install(self) -> None:
        """Put the seams in place; torch is imported by now."""
        if self._stopped or self._seams is not None:
            return
        try:
            import torch

            from lossdoctor.record.events import Observer
            from lossdoctor.record.seams import Seams

            self._head["torch"] = torch.__version__
            self._observer = Observer(self, self._budget, self._max_steps)
            self._observer.began = self._began
            self._seams = Seams(self._observer)
            self._seams.install()
            self.then()
        except Exception as error:  # a torch that we do not know: the script runs on, unwatched
            self._fail(error)

    def adopt(self, *optimizers: Any) -> None:
        """Know optimisers that were made before the seams were in place."""
        for optimizer in optimizers:
            if self._observer is not None:
                self._observer.optimizer_made(optimizer)

    def record_little(self) -> None:
        """Record from here on only what every step gives: no captures, no sampled probes."""
        if self._observer is not None:
            self._observer.capture.stop()
            self._observer.budget.spend_nothing()

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep a line until the next flush."""
        self._lines.append(line)

    def note(self, text: str) -> None:
        """Keep a sentence on what went wrong in our own measuring."""
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            self._lines.append({"kind": "note", "text": text})

    def flush(self) -> None:
        """Hand the lines to the writer, once a step has been seen."""
        if self._writer is None or os.getpid() != self._pid:
            self._lines.clear()
            return
        if self._writer.made or any(line["kind"] == "steps" for line in self._lines):
            lines, self._lines = self._lines, []
            self._writer.append(lines)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Let what is done within the block not be recorded; for treatments, which call the model themselves."""
        observer = self._observer
        before = observer.off if observer is not None else True
        if observer is not None:
            observer.steady.leave()
            observer.off = True
        try:
            yield
        finally:
            if observer is not None:
                observer.off = before

    def end_later(self) -> None:
        """End the recording from inside a hook: patches stay until `stop`, but see nothing more."""
        if self._observer is not None and not self._observer.off:
            self._observer.off = True
            self._observer.finish()

    def stop(self, how: str | None = None, status: int | None = None, exception: str | None = None) -> None:
        """Flush, undo every patch, close; never raises.

        Args:
            how: `returned`, `exit`, `exception`, `signal`; writes `end.json`, which otherwise the supervisor does.
            status: exit status.
            exception: class name.
        """
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        try:
            if self._observer is not None and not self._observer.off:
                self._observer.finish()
        except Exception as error:
            self._fail(error)
        try:
            if self._seams is not None:
                self._seams.undo()
            self.flush()
            if how is not None and self._writer is not None and self._writer.made:
                seconds = time.perf_counter() - self._began
                self._writer.end({"how": how, "status": status, "exception": exception, "seconds": seconds})
            if self._writer is not None:
                self._writer.close()
        except Exception as error:
            self._fail(error)

    def disarm_child(self) -> None:
        """Write nothing and see nothing in a forked child."""
        self._writer = None
        if self._observer is not None:
            self._observer.off = True

    def _fail(self, error: Exception) -> None:
        if self._observer is not None:
            self._observer.off = True
        self.note(f"broke: recorder: {type(error).__name__}: {error}")


def _free_name(out: Path, now: datetime) -> str:
    name = f"{now:%Y%m%d-%H%M%S}-{os.getpid()}"
    number = 2
    candidate = name
    while (out / candidate).exists():
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _rank() -> dict[str, Any]:
    """Return which rank of which distributed training this process is, as launchers tell it; empty where it is none."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return {}
    if size < 2:
        return {}
    import hashlib

    named = ":".join(os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))
    return {"rank": rank, "world_size": size, "job": hashlib.sha256(named.encode()).hexdigest()[:16]}  # not the name of a machine


def _memory() -> int | None:
    """Return the memory that this process may have, in bytes: the machine's, or less where a control group says so; None if not told."""
    known = []
    try:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as stream:
            known.append(int(stream.read()))
    except (OSError, ValueError, AttributeError):
        pass  # no limit ("max"), an older control group, or another system
    return min(known, default=None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
