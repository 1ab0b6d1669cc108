"""What must hold before a run is repeated: how it was started is known, its script is there, and is the one that was watched."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from lossdoctor.core.errors import LossdoctorError


def check_script(folder: Path, say: Callable[[str], None]) -> None:
    """Look for the script of a run, and warn where it is newer than the run.

    Args:
        folder: of the run.
        say: tells the user.

    Raises:
        LossdoctorError: nothing tells how the script was started, or it is gone.
    """
    private = folder / "private.json"
    if not private.is_file():
        raise LossdoctorError(f"{folder} holds no private.json, which tells how the script was started; run it again", status=2)
    try:
        started = json.loads(private.read_text(encoding="utf-8"))
        script = Path(started["cwd"], started["argv"][0])
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise LossdoctorError(f"{private} cannot be read; run the script again", status=2) from error
    if started.get("module"):
        return  # its file is found by the interpreter alone
    if not script.is_file():
        raise LossdoctorError(f"{script} is gone, so it cannot be run again", status=2)
    if script.stat().st_mtime > _began(folder):
        say(f"{script} has changed since it was watched; trials compare it with what it was: `lossdoctor run` watches it anew")


def _began(folder: Path) -> float:
    """Return when the run began, as a time of files; never where that is not known."""
    try:
        facts: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return datetime.fromisoformat(str(facts["started"])).timestamp()
    except (OSError, ValueError, KeyError):
        return float("inf")
