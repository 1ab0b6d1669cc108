"""Start the script in a process of its own, pass signals on to it, wait for it, and say how it ended. No torch here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.launch.ask import Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from lossdoctor.launch.ask import Ask

_START = Path(__file__).with_name("start.py")
# SIGINT and SIGQUIT of a terminal reach the script without us; the rest is sent to one process only.
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
_PASSED_ON = (*_FROM_TERMINAL, "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True)
class Job:
    """Hold what to run and how to record it.

    Args:
        arguments: the script, or module name, as typed, and its own arguments.
        out: folder of the runs, absolute, because the script may change directory.
        module: whether the first argument is a module name, as in `python -m`.
        budget: share of a step's time that measuring may take.
        max_steps: steps after which recording ends, or None.
        facts: what to write into the run beside what is measured.
        answers: module whose `Workup` answers questions in the script's process once the script has ended.
    """

    arguments: Sequence[str]
    out: Path
    module: bool = False
    budget: float = 0.01
    max_steps: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    answers: str = "lossdoctor.experiments.workup"

    @property
    def script(self) -> str:
        """The script as typed."""
        return f"-m {self.arguments[0]}" if self.module else self.arguments[0]


@dataclass(frozen=True)
class Ending:
    """Hold how a script's process ended.

    Args:
        how: `returned`, `exit`, `exception`, `signal` or `killed`.
        status: exit status; minus the signal's number where a signal ended it.
        exception: class name of the error that ended it, or None.
        seconds: from its start to its end.
        pid: its process number.
        began: seconds since the epoch.
        note: what kept us from recording, or empty.
    """

    how: str
    status: int
    exception: str | None
    seconds: float
    pid: int
    began: float
    note: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What `end.json` holds."""
        return {"how": self.how, "status": self.status, "exception": self.exception, "seconds": round(self.seconds, 3)}


def supervise(job: Job, meanwhile: Callable[[], None] = lambda: None, work: Callable[[Ask], None] | None = None) -> Ending:
    """Run a script to its end and tell how it ended. Terminal, environment and open files are the script's.

    Args:
        meanwhile: called once in a thread of low priority while the script runs.
        work: called in a thread when the script has ended and its process waits for questions.
    """
    scratch = Path(tempfile.mkdtemp(prefix="lossdoctor-"))
    word = scratch / "ending.json"
    began, clock = time.time(), time.monotonic()
    questions = Questions(scratch / "ask") if work is not None else None
    try:
        with _signals_passed_on() as attach:
            # All files that the user's shell opened are passed on, as python would; ours are closed by themselves.
            process = subprocess.Popen(_command(job, word, questions), close_fds=False)
            if questions is not None and work is not None:
                questions.when_asked_for(work)
            attach(process)
            threading.Thread(target=_at_low_priority, args=(meanwhile,), daemon=True).start()
            status = process.wait()
        return _ending(status, word, process.pid, began, clock, questions is not None and questions.asking)
    finally:
        if questions is not None:
            questions.close()
        shutil.rmtree(scratch, ignore_errors=True)


def run_folder(out: Path, ending: Ending) -> Path | None:
    """Return the folder that the script's process wrote its run into, or None where it recorded nothing."""
    # A process number may come again within the runs that are kept: the file must be of this run.
    files = [file for file in out.glob(f"*-{ending.pid}*/run.json") if re.fullmatch(rf"\d+-\d+-{ending.pid}(-\d+)?", file.parent.name)]
    recent = [file.parent for file in files if file.stat().st_mtime >= ending.began - 1]
    return max(recent, default=None)


def write_ending(folder: Path, ending: Ending) -> None:
    """Write `end.json`."""
    with suppress(OSError):  # a full disk: the diagnosis goes on without
        (folder / "end.json").write_text(json.dumps(ending.facts))


def end_as(status: int) -> None:
    """End this process as the script ended: with its exit status, or by the same signal."""
    if status >= 0:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file, the script's, is enough
    with suppress(OSError, ValueError):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    sys.exit(128 - status)  # where the signal is blocked


def _command(job: Job, word: Path, questions: Questions | None) -> list[str]:
    options = {
        "out": str(job.out),
        "script": job.script,
        "module": job.module,
        "budget": job.budget,
        "max_steps": job.max_steps,
        "facts": dict(job.facts),
        "ending": str(word),
        "ask": str(questions.path) if questions is not None else "",
        "answers": job.answers,
    }
    return [sys.executable, *interpreter_options(sys.orig_argv, sys.argv), str(_START), json.dumps(options), *job.arguments]


def interpreter_options(whole: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Return the options of python itself that we were started with: the script is started with them too.

    Example:
        >>> interpreter_options(["python", "-O", "-X", "dev", "-m", "lossdoctor", "run", "a.py"], ["/x/__main__.py", "run", "a.py"])
        ['-O', '-X', 'dev']
    """
    arguments = list(ours[1:])
    if list(whole[len(whole) - len(arguments) :]) != arguments:
        return []
    options = list(whole[1 : len(whole) - len(arguments)])[:-1]
    if options and re.fullmatch(r"-[A-Za-z]*[cm]", options[-1]):
        options[-1] = options[-1][:-1]  # what names the program, alone or at the end of a cluster
    return [option for option in options if option != "-"]


def _at_low_priority(work: Callable[[], None]) -> None:
    if sys.platform == "linux":  # only there does a thread have a priority of its own
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    with suppress(Exception):  # whatever fails here fails again, and is told, when it is needed
        work()


@contextmanager
def _signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass signals on to the process that is attached; those that came before it are sent when it is."""
    attached: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def send(number: int, frame: FrameType | None = None) -> None:
        if not attached:
            early.append(number)
        elif attached[0].returncode is None and not (signal.Signals(number).name in _FROM_TERMINAL and _in_foreground()):
            with suppress(ProcessLookupError):
                os.kill(attached[0].pid, number)

    def attach(process: subprocess.Popen[bytes]) -> None:
        attached.append(process)
        for number in early:
            send(number)

    before = {}
    for number in (getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)):
        # One that is ignored (nohup) stays ignored, here and in the script. A handler is not inherited: the script has python's own.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, send)
    try:
        yield attach
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def patient_with_interrupts(seconds: float = 1.0) -> Iterator[None]:
    """Let the second Ctrl-C of a user who wanted the script to stop not take the report away; a later one does."""
    until = time.monotonic() + seconds

    def interrupt(number: int, frame: FrameType | None) -> None:
        if time.monotonic() > until:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_foreground() -> bool:
    """Tell whether we are a terminal's foreground job, whose Ctrl-C the script has got as well."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def _ending(status: int, word: Path, pid: int, began: float, clock: float, asking: bool) -> Ending:
    """Say how the script ended; `asking` tells that its process ended while it answered us, after the script's own end."""
    told: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        told = json.loads(word.read_text())
    if asking and told:
        status = int(told["status"])
    if status < 0 and told.get("exception") != "KeyboardInterrupt":
        how, exception = ("killed" if status == -getattr(signal, "SIGKILL", 9) else "signal"), None
    else:
        how, exception = told.get("how", "exit"), told.get("exception")
    return Ending(how, status, exception, told.get("clock", time.monotonic()) - clock, pid, began, told.get("note", ""))
