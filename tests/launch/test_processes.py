"""Worker processes, pickling and changed folders behave as under python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Shell

WORKERS = r"""
import multiprocessing, os, sys

class Item:
    def __init__(self, value):
        self.value = value

def work(item):
    main = sys.modules["__main__"]
    return item.value * 2, type(item).__module__, main.__name__, getattr(main, "__file__", None), sys.argv, sys.path[0], __name__

os.write(1, f"top {__name__} {sorted(name for name in globals() if name.startswith('__mp'))}\n".encode())  # whole, from two workers

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for answer in pool.map(work, [Item(1), Item(2)], chunksize=1):
            os.write(1, f"{answer}\n".encode())
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("start", [["me.py"], ["-m", "package.me"]])
def test_pools_of_workers(shell: Shell, method: str, start: list[str]) -> None:
    shell.write("me.py", WORKERS)
    shell.write("package/__init__.py", "")
    shell.write("package/me.py", WORKERS)
    plain, watched = shell.both(*start, method)
    # Two workers print in any order, and one may take both items before the other has begun.
    assert set(watched.out.splitlines()) == set(plain.out.splitlines())
    assert (watched.status, watched.err) == (plain.status, plain.err)
    assert plain.out.count("(4, ") == 1


def test_a_forked_child_that_exits(shell: Shell) -> None:
    shell.write(
        "me.py",
        "import atexit, os, sys\natexit.register(print, 'atexit')\nchild = os.fork()\n"
        "if child == 0:\n    sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    )
    assert "3" in shell.same("me.py").out


def test_a_script_that_becomes_another_program(shell: Shell) -> None:
    shell.write(
        "me.py",
        "import os, sys\nif len(sys.argv) == 1:\n    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\n"
        "print(sys.argv)\nsys.exit(6)",
    )
    assert shell.same("me.py").status == 6


def test_a_script_that_leaves_a_process_behind_does_not_keep_us(shell: Shell) -> None:
    shell.write(
        "me.py",
        "from subprocess import DEVNULL, Popen\nPopen(['sleep', '30'], stdout=DEVNULL, stderr=DEVNULL, stdin=DEVNULL)\nprint('done')",
    )
    assert shell.same("me.py").out == "done\n"


def test_all_files_closed_by_the_script(shell: Shell) -> None:
    """A daemon closes what it does not know: nothing of ours may be written into a file that took the number."""
    shell.write("me.py", "import os\nos.closerange(3, 256)\nfiles = [open(f'file{i}', 'w') for i in range(5)]\nprint('done')")
    assert shell.same("me.py").out == "done\n"
    assert {path.name: path.read_text() for path in shell.folder.glob("file*")} == {f"file{i}": "" for i in range(5)}


def test_a_script_that_changes_its_folder(shell: Shell) -> None:
    (shell.folder / "runs").mkdir()
    shell.write("helper.py", "value = 5")
    shell.write("me.py", "import os\nos.chdir('runs')\nimport helper\nopen('made', 'w').close()\nprint(os.getcwd(), helper.value)")
    shell.same("me.py")
    told = shell.doctor("run", "--json", "report.json", "me.py")
    assert told.status == 0
    assert (shell.folder / "report.json").is_file()
    assert sorted(path.name for path in (shell.folder / "runs").iterdir()) == ["made"]
