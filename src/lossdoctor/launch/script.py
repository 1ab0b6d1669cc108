"""Run a script or a module as python would, with the recorder armed. Nothing heavy is imported here.

A file is compiled and executed in the `__main__` module that python itself made; a module, a folder or a zip file goes
through `runpy` as python's own start does. An error leaves through python's own handling, so that the exit status, the
excepthook, threads and atexit are python's; only our frames are taken out of its traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from typing import TYPE_CHECKING, Any

from lossdoctor.launch.frames import hide_our_frames

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from lossdoctor.record import Recorder

# What python's own `__main__` holds before the first line of a script runs; the rest is the launcher's.
_OWN = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__", "__builtins__", "__file__", "__cached__")

notes: list[str] = []  # what the user should know of how the script went
recorder: Recorder | None = None  # of this process, for `watch()` in a script that is watched already


def main() -> None:
    """Run what the command line names: our options as one JSON argument, then the script and its arguments."""
    job = json.loads(sys.argv[1])
    rest = sys.argv[2:]
    interpreter = sys.orig_argv[: len(sys.orig_argv) - len(rest) - 2]
    sys.orig_argv = [*interpreter, *(["-m"] if job["module"] else []), *rest]
    if "isolation" in job:
        _shut_off(job["isolation"])
        # By name: the launcher does not know trials, the session does.
        importlib.import_module("lossdoctor.trials.prepare").prepare(job.get("number"), job.get("edits", {}))
    job["process"] = os.getpid()
    _arm(job, rest)
    if "until" in job:
        from lossdoctor.launch.alarm import at

        at(job["until"], lambda: _end_early(job))
    if recorder is not None and "treats" in job:
        recorder.then = lambda: _treat(job)
    try:
        if job["module"]:
            _run_module(rest)
        else:
            _run_path(rest)
    except BaseException as error:
        _tell_ending(job, error)
        _print_as_python(job)
        if isinstance(error, SystemExit):
            _answer_questions(job)
        raise
    _tell_ending(job, None)
    _answer_questions(job)


def _arm(job: dict[str, Any], rest: list[str]) -> None:
    """Arm the recorder, which sees to its own end; what goes wrong with it is told, and keeps no script from running."""
    global recorder
    private = {"argv": rest, "module": job["module"], "cwd": os.getcwd(), "environ": dict(os.environ), "python": sys.executable}
    try:
        from lossdoctor import record

        recorder = record.arm(
            job["out"], script=job["script"], budget=job["budget"], max_steps=job["max_steps"], private=private, facts=job["facts"]
        )
    except Exception as error:
        job["note"] = f"broke: nothing was recorded: {type(error).__name__}: {error}"


def _shut_off(isolation: dict[str, str]) -> None:
    """Shut this process off before it repeats a script; it does not run at all where that fails."""
    from pathlib import Path

    from lossdoctor.launch.isolation import end_with_parent

    end_with_parent()
    if isolation["way"] == "namespaces":
        from lossdoctor.launch.isolation import enter_namespaces

        enter_namespaces(Path(isolation["keep"]))
    else:
        from lossdoctor.launch.guard import guard

        guard(Path(isolation["keep"]))


def _treat(job: dict[str, Any]) -> None:
    """Apply a repetition's treatments, once torch is imported."""
    from pathlib import Path

    assert recorder is not None
    if job["isolation"]["way"] == "guarded":
        from lossdoctor.launch.guard import guard_torch

        guard_torch(Path(job["isolation"]["keep"]))
    # By name: the launcher does not know treatments, the session does.
    importlib.import_module(job["treats"]).apply(job["treatments"], lambda: _end_early(job))


def _end_early(job: dict[str, Any]) -> None:
    """End a repeated script where it is, having answered the questions about it; nothing of it goes on."""
    if job.get("ended"):
        return  # a step within an experiment
    told = {
        "how": "stopped",
        "exception": None,
        "note": "; ".join(filter(None, [job.get("note", ""), *notes])),
        "status": 0,
        "clock": time.monotonic(),
    }
    with contextlib.suppress(OSError), open(job["ending"], "w") as word:
        json.dump(told, word)
    if recorder is not None:
        recorder.stop()
    _answer_questions(job, early=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)


def _run_path(rest: list[str]) -> None:
    """Execute a file, or the `__main__.py` of a folder or zip file."""
    path = os.path.join(os.getcwd(), rest[0])
    _clear_main()
    sys.argv = list(rest)
    if os.path.isdir(path) or not _is_file_of_code(path):
        sys.path.insert(0, path)
        import runpy

        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    namespace = vars(sys.modules["__main__"])
    code, namespace["__loader__"] = _load(path)
    namespace["__file__"] = path
    exec(code, namespace)


def _run_module(rest: list[str]) -> None:
    """Execute a module as `python -m` does; it sets `sys.argv[0]` itself."""
    _clear_main()
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *rest[1:]]
    import runpy

    runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]


def _clear_main() -> None:
    """Leave in `__main__` what python puts there itself, for a script that begins."""
    namespace = vars(sys.modules["__main__"])
    for name in [name for name in namespace if name not in _OWN]:
        del namespace[name]
    namespace["__doc__"] = None
    if "__annotations__" in namespace:
        namespace["__annotations__"] = {}


def _is_file_of_code(path: str) -> bool:
    """Tell a file of code from an archive that python would look into."""
    import zipfile

    return path.endswith((".py", ".pyc")) or not zipfile.is_zipfile(path)


def _load(path: str) -> tuple[CodeType, SourceFileLoader | SourcelessFileLoader]:
    if path.endswith(".pyc"):
        compiled = SourcelessFileLoader("__main__", path)
        code = compiled.get_code("__main__")
        assert code is not None
        return code, compiled
    with open(path, "rb") as stream:
        return compile(stream.read(), path, "exec", dont_inherit=True), SourceFileLoader("__main__", path)


def _print_as_python(job: dict[str, Any]) -> None:
    """Have python print the error that is about to leave through our frames without them; then answer questions."""
    chosen = getattr(sys, "excepthook", None)
    if chosen is None:
        return

    def print_without_our_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = chosen
        hide_our_frames(error)
        chosen(kind, error, error.__traceback__)
        _answer_questions(job)
        if isinstance(error, KeyboardInterrupt):
            _remember_interrupt()

    sys.excepthook = print_without_our_frames


def _remember_interrupt() -> None:
    """Let python end by SIGINT all the same: it notes whether the last text that it executed was interrupted, and we executed more."""
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _tell_ending(job: dict[str, Any], error: BaseException | None) -> None:
    """Leave a word for the supervisor how the script ended; the exit status alone does not tell an error from an exit."""
    if os.getpid() != job["process"]:
        return  # a forked child that came to the end of the script too
    how = "returned" if error is None else "exit" if isinstance(error, SystemExit) else "exception"
    name = _error_name(error) if how == "exception" else None
    told = {
        "how": how,
        "exception": name,
        "note": "; ".join(filter(None, [job.get("note", ""), *notes])),
        "status": _status(error),
        "clock": time.monotonic(),
    }
    if job.get("isolation", {}).get("way") == "guarded":
        from lossdoctor.launch import guard

        told["refused"] = str(error) if isinstance(error, guard.NotIsolated) else guard.first_refusal if how == "exception" else ""
    with contextlib.suppress(OSError), open(job["ending"], "w") as stream:
        json.dump(told, stream)


def _error_name(error: BaseException | None) -> str:
    """Return the name of an error's class; one name for all that say that memory ran out, which torch has no class for on a processor."""
    told = str(error)
    ran_out = isinstance(error, RuntimeError) and ("allocate memory" in told or "not enough memory" in told)
    return "OutOfMemoryError" if ran_out else type(error).__name__


def _status(error: BaseException | None) -> int:
    """Return the exit status that python gives to this end of a script: minus a signal's number where it ends itself by one."""
    if isinstance(error, KeyboardInterrupt):
        return -signal.SIGINT
    if not isinstance(error, SystemExit):
        return 0 if error is None else 1
    return error.code if isinstance(error.code, int) else 0 if error.code is None else 1


def _answer_questions(job: dict[str, Any], *, early: bool = False) -> None:
    """Let the supervisor ask for experiments on what was captured, as long as the process still holds it.

    Args:
        early: whether the process ends here, whatever its threads still do.
    """
    job["ended"] = True
    if "until" in job:
        from lossdoctor.launch import alarm

        alarm.off()
    if recorder is None or not recorder.started or not job["ask"] or os.getpid() != job["process"]:
        return
    if not early and any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return  # the script goes on in a thread that python will wait for, and may train there
    with contextlib.suppress(BaseException):  # the script has ended: neither an error nor Ctrl-C in here may change how
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()  # the script's last words do not wait for us
        recorder.stop()
        from lossdoctor.launch.ask import answer_questions

        # By name: the launcher does not know experiments, the session does.
        answering = importlib.import_module(job["answers"]).Workup(recorder.captures, recorder.folder)
        answer_questions(job["ask"], answering.answer)
