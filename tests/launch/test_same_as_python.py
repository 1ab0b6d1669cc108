"""A script that is watched sees and does what it sees and does under python."""

from __future__ import annotations

import os
import py_compile
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Shell

# Prints all that a script can see of itself, a line each. Addresses are left out: they differ from run to run.
SELF = r"""
import atexit, gc, importlib, json, locale, os, re, resource, signal, sys, threading, warnings
def show(name, value):
    print(name, re.sub(r" at 0x[0-9a-f]+", "", repr(value)))
main = sys.modules["__main__"]
show("main is this", vars(main) is globals())
show("globals", {name: value for name, value in globals().items() if name.startswith("__")})
show("order", [name for name in globals() if name.startswith("__")])
show("argv", sys.argv)
show("orig_argv", sys.orig_argv)
show("path", sys.path)
show("flags", sys.flags)
show("warnoptions", sys.warnoptions)
show("filters", warnings.filters)
show("xoptions", sys._xoptions)
show("cwd", os.getcwd())
show("environ", sorted(os.environ.items()))
show("group", os.getpgrp() == os.getpgid(os.getppid()))
show("session", os.getsid(0) == os.getsid(os.getppid()))
show("umask", os.umask(0o22))
show("limits", [resource.getrlimit(number) for number in range(16)])
show("nice", os.nice(0))
show("files", sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1])
for stream in (sys.stdin, sys.stdout, sys.stderr):
    show(stream.name, (stream.isatty(), stream.encoding, stream.errors, stream.line_buffering, stream.write_through))
show("signals", [(number, signal.getsignal(number)) for number in sorted(signal.valid_signals())])
show("mask", signal.pthread_sigmask(signal.SIG_BLOCK, ()))
show("threads", [thread.name for thread in threading.enumerate()])
show("hooks", (sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__))
show("thread hook", threading.excepthook is threading.__excepthook__)
show("trace", (sys.gettrace(), sys.getprofile(), threading.gettrace() if hasattr(threading, "gettrace") else None))
show("limit", sys.getrecursionlimit())
show("gc", (gc.isenabled(), gc.get_threshold(), gc.callbacks))
show("locale", locale.setlocale(locale.LC_ALL))
show("print", (print.__module__, open.__module__, exec, __import__))
show("stdin", sys.stdin.read())
show("doc", __doc__)
x: int = 3
show("annotations", __annotations__)
"""


@pytest.mark.parametrize("typed", ["me.py", "./me.py", "sub/../me.py", "{folder}/me.py", "link.py", "sub/far.py"])
def test_a_script_sees_the_same_of_itself(shell: Shell, typed: str) -> None:
    shell.write("me.py", '"""What I am."""\n' + SELF)
    shell.write("sub/other.py", SELF)
    (shell.folder / "link.py").symlink_to("sub/other.py")
    (shell.folder / "sub" / "far.py").symlink_to(shell.folder / "me.py")
    seen = shell.same(typed.format(folder=shell.folder), "--out", "x", "-m", "--json=-", "", "a b", stdin="line\n\nlast")
    assert seen.status == 0
    assert "'line\\n\\nlast'" in seen.out


@pytest.mark.parametrize("arguments", [["-m", "me"], ["-m", "package"], ["-m", "package.inner"], ["package"], ["archive.zip"], ["me.pyc"]])
def test_modules_folders_archives_and_compiled_files_too(shell: Shell, arguments: list[str]) -> None:
    script = shell.write("me.py", SELF)
    for name in ("package/__init__.py", "package/__main__.py", "package/inner.py"):
        shell.write(name, "from . import __name__ as parent\n" + SELF if name.endswith("inner.py") else SELF)
    with zipfile.ZipFile(shell.folder / "archive.zip", "w") as archive:
        archive.write(script, "__main__.py")
    py_compile.compile(str(script), cfile=str(shell.folder / "me.pyc"))
    assert "argv" in shell.same(*arguments, "--epochs", "3").out


def test_the_options_of_python_itself_are_passed_on(shell: Shell) -> None:
    shell.write("me.py", SELF + "\nassert False, 'not reached without -O'")
    options = ["-O", "-W", "ignore::ImportWarning", "-X", "utf8"]
    plain = shell.python(*options, "me.py", "a")
    watched = shell.python(*options, str(shell.entry), "run", "--quiet", "me.py", "a")
    module = shell.python("-OWignore::ImportWarning", "-Xutf8", "-m", "lossdoctor", "run", "--quiet", "me.py", "a")
    assert watched == plain
    assert "(False, 'utf-8'" in module.out
    assert module.status == 0


def test_safe_path_is_heeded(shell: Shell) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("python has no safe path before 3.11")
    shell.environ["PYTHONSAFEPATH"] = "1"
    shell.write("me.py", "import sys; print(sys.path)")
    assert str(shell.folder) not in shell.same("me.py").out
    assert shell.same("-m", "me").status == 1


def test_the_shells_open_files_are_the_scripts_too(shell: Shell) -> None:
    shell.write("me.py", "import os; os.write(int(os.sys.argv[1]), b'to the file')")
    with (shell.folder / "file").open("wb") as stream:
        os.set_inheritable(stream.fileno(), True)
        assert shell.doctor("run", "me.py", str(stream.fileno()), close_fds=False).status == 0
    assert (shell.folder / "file").read_text() == "to the file"


def test_a_terminal_is_still_one(shell: Shell) -> None:
    pty = pytest.importorskip("pty")
    shell.write("me.py", "import os, sys; print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], os.get_terminal_size())")
    seen = []
    for command in (["me.py"], [str(shell.entry), "run", "--quiet", "me.py"]):
        ours, theirs = pty.openpty()
        shell.start(sys.executable, *command, stdin=theirs, stdout=theirs, stderr=theirs).wait(60)
        seen.append(os.read(ours, 1000))
        os.close(ours)
        os.close(theirs)
    assert b"[True, True, True]" in seen[0]
    assert seen[1] == seen[0]


def test_files_of_the_user_named_like_modules_of_python_are_not_ours(shell: Shell) -> None:
    """The launcher must not pick up a `json.py` beside the script, nor keep the script from picking up its own."""
    for name in ("json", "click", "numpy", "lossdoctor", "record", "contextlib_of_mine"):
        shell.write(f"{name}.py", f"print('mine: {name}')")
    shell.write("me.py", "import click, record, contextlib_of_mine")
    assert shell.same("me.py").out == "mine: click\nmine: record\nmine: contextlib_of_mine\n"


def test_streams_are_the_scripts_own_in_its_own_order(shell: Shell) -> None:
    shell.write("me.py", "import os, sys\nfor i in range(3):\n    print(i, file=sys.stderr)\n    print(i)\n    os.write(1, b'raw ')")
    plain = shell.python("me.py", stderr=-2)
    watched = shell.doctor("run", "--quiet", "me.py", stderr=-2)
    assert watched == plain


@pytest.mark.slow
def test_a_million_lines_pass_whole(shell: Shell) -> None:
    shell.write("me.py", "for i in range(1_000_000):\n    print('line', i)")
    seen = shell.same("me.py")
    assert seen.out.count("\n") == 1_000_000
    assert seen.out.endswith("line 999999\n")


def test_a_broken_pipe_is_the_scripts_own_matter(shell: Shell) -> None:
    shell.write("me.py", "for i in range(100_000):\n    print('line', i)")
    statuses = []
    for command in (["me.py"], [str(shell.entry), "run", "--quiet", "me.py"]):
        process = shell.start(sys.executable, *command)
        assert process.stdout is not None
        process.stdout.close()
        statuses.append(process.wait(60))
    assert statuses[0] == statuses[1] == 1
