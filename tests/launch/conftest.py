"""Run a script by python and by `lossdoctor run`, as a shell would start either."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lossdoctor

PACKAGE = Path(lossdoctor.__file__).parent.parent
ENTRY = "import sys; from lossdoctor.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Result:
    """What a process left: its status (minus a signal's number), standard output and standard error without addresses."""

    status: int
    out: Any
    err: Any


class Shell:
    """Start scripts in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.entry = folder / "lossdoctor"  # what an installer writes
        self.entry.write_text(ENTRY)
        self.environ = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, text=True, **{**pipes, **options})

    def finish(self, process: subprocess.Popen[str], stdin: str) -> Result:
        out, err = process.communicate(stdin, timeout=120)
        return Result(process.returncode, *(None if text is None else re.sub(r"0x[0-9a-f]+", "0x", text) for text in (out, err)))

    def python(self, *arguments: str, stdin: str = "", **options: Any) -> Result:
        return self.finish(self.start(sys.executable, *arguments, **options), stdin)

    def doctor(self, *arguments: str, stdin: str = "", **options: Any) -> Result:
        return self.finish(self.start(sys.executable, str(self.entry), *arguments, **options), stdin)

    def both(self, *arguments: str, stdin: str = "") -> tuple[Result, Result]:
        """Run the same by python and by `lossdoctor run --quiet`."""
        return self.python(*arguments, stdin=stdin), self.doctor("run", "--quiet", *arguments, stdin=stdin)

    def same(self, *arguments: str, stdin: str = "") -> Result:
        """Run the same both ways, assert that nothing differs, and return it."""
        plain, watched = self.both(*arguments, stdin=stdin)
        assert watched.out.splitlines() == plain.out.splitlines()  # by lines, so that pytest shows which one differs
        assert watched == plain
        return plain


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
