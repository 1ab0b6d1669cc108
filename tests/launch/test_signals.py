"""Signals reach the script as they would under python, and its death is passed on as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Result, Shell

WAIT = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
UNDER_WAY = 0.3  # seconds from `ready` until the script surely waits in its next statement


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(UNDER_WAY)


def interrupted(shell: Shell, number: int, *command: str) -> Result:
    """Start a process, send it a signal once its script is under way, and return what it left."""
    process = shell.start(sys.executable, *command, start_new_session=True)
    ready(process)
    process.send_signal(number)
    return shell.finish(process, "")


def doctor(shell: Shell, *rest: str) -> tuple[str, ...]:
    return (str(shell.entry), "run", "--quiet", *rest)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGINT"])
@pytest.mark.parametrize("handled", [False, True])
def test_a_signal_sent_to_us_reaches_the_script(shell: Shell, name: str, handled: bool) -> None:
    handler = f"import signal, sys\nsignal.signal(signal.{name}, lambda *a: (print('got it'), sys.exit(7)))\n" if handled else ""
    shell.write("me.py", handler + WAIT)
    number = getattr(signal, name)
    plain, watched = interrupted(shell, number, "me.py"), interrupted(shell, number, *doctor(shell, "me.py"))
    assert watched == plain
    assert plain.status == (7 if handled else -number)


def test_ctrl_c_reaches_the_script_once_and_its_traceback_is_pythons(shell: Shell) -> None:
    shell.write(
        "me.py",
        "import time\nprint('ready', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    time.sleep(0.5)\n    print('saved')\n    raise",
    )
    plain = in_terminal(shell, b"\x03", "me.py")
    watched = in_terminal(shell, b"\x03", *doctor(shell, "me.py"))
    assert watched == plain
    assert "saved" in watched[1]
    assert watched[0] == -signal.SIGINT


def test_ctrl_c_can_be_survived(shell: Shell) -> None:
    shell.write(
        "me.py", "import time\nprint('ready', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stopped early')"
    )
    status, text = in_terminal(shell, b"\x03", str(shell.entry), "run", "me.py")
    assert status == 0
    assert text.index("stopped early") < text.index("lossdoctor:")


def in_terminal(shell: Shell, keys: bytes, *command: str) -> tuple[int, str]:
    """Run a command as the foreground job of a terminal of its own, press keys once it is ready, return status and text."""
    import pty

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(shell.folder)
        os.execve(sys.executable, [sys.executable, *command], shell.environ)
    text = b""
    pressed = False
    while True:
        try:
            text += os.read(terminal, 4096)
        except OSError:
            break
        if not pressed and b"ready" in text:
            time.sleep(UNDER_WAY)
            os.write(terminal, keys)
            pressed = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.decode()


@pytest.mark.parametrize(
    "how", ["os.kill(os.getpid(), signal.SIGKILL)", "os.abort()", "os.kill(os.getpid(), signal.SIGSEGV)", "ctypes.string_at(0)"]
)
def test_a_death_is_passed_on(shell: Shell, how: str) -> None:
    shell.write("me.py", f"import ctypes, os, signal\nprint('before', flush=True)\n{how}")
    assert shell.same("me.py").status < 0


def test_an_ignored_signal_stays_ignored(shell: Shell) -> None:
    """As under nohup."""
    shell.write("me.py", "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGHUP, signal.SIGINT)])")
    ignore = (
        "import os, signal, sys\nfor number in (signal.SIGHUP, signal.SIGINT):\n    signal.signal(number, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    plain = shell.python("-c", ignore, "me.py")
    watched = shell.python("-c", ignore, *doctor(shell, "me.py"))
    assert watched == plain
    assert plain.out == "[True, True]\n"


def test_a_signal_that_comes_before_the_script_is_not_lost(shell: Shell) -> None:
    shell.write("me.py", WAIT)
    process = shell.start(sys.executable, *doctor(shell, "me.py"))
    time.sleep(0.1)  # python is still starting, or the script is: both must end
    process.send_signal(signal.SIGTERM)
    assert shell.finish(process, "").status == -signal.SIGTERM


def test_nothing_is_left_in_the_folder_of_temporary_files(shell: Shell, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    shell.environ["TMPDIR"] = str(scratch)
    shell.write("me.py", WAIT)
    assert interrupted(shell, signal.SIGTERM, *doctor(shell, "me.py")).status == -signal.SIGTERM
    assert list(scratch.iterdir()) == []
