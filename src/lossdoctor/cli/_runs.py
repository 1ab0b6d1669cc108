"""The runs that are kept: find one by what the user types, and say what is known of it without loading it."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossdoctor.core.errors import UsageError

LAST = "last"


@dataclass(frozen=True)
class Entry:
    """Hold one line of the list of runs.

    Args:
        name: of the run's folder.
        script: as typed.
        started: ISO time.
        ended: how it ended, or empty where that is not known.
        steps: how many were recorded, or None.
        verdict: slug, or empty where there is no report.
    """

    name: str
    script: str
    started: str
    ended: str
    steps: int | None
    verdict: str


def run_folders(out: Path) -> list[Path]:
    """Return the folders of the runs in `out`, oldest first."""
    # Names begin with the time to the second; what began within the same second is told apart by its file.
    found = [file.parent for file in out.glob("*/run.json")]
    return sorted(found, key=lambda folder: (folder.name[:15], (folder / "run.json").stat().st_mtime))


def find_run(name: str, out: Path) -> Path:
    """Return the folder of a run by its path, its name, a prefix that only it has, or `last`.

    Raises:
        UsageError: where there is none, or more than one.
    """
    if (Path(name) / "run.json").is_file():
        return Path(name)
    folders = run_folders(out)
    if not folders:
        raise UsageError(f"no run is kept in {out}; `lossdoctor run SCRIPT` makes one, --out names another folder")
    if name == LAST:
        return folders[-1]
    exact = [folder for folder in folders if folder.name == name]
    matching = exact or [folder for folder in folders if folder.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"{len(matching)} runs begin with {name!r}: {', '.join(folder.name for folder in matching[-3:])}; type more of it")
    near = difflib.get_close_matches(name, [LAST, *(folder.name for folder in folders)], n=1)
    raise UsageError(f"no run is called {name!r}{f'; did you mean {near[0]!r}?' if near else '; `lossdoctor list` shows them'}")


def entry(folder: Path) -> Entry:
    """Read what the list shows of a run from its small files; damaged ones leave gaps."""
    run, end, report = (_read(folder / name) for name in ("run.json", "end.json", "diagnosis.json"))
    steps = _part(report, "vitals").get("steps")
    return Entry(
        folder.name,
        str(run.get("script", "")),
        str(run.get("started", "")),
        _ended(end),
        steps if isinstance(steps, int) else None,
        str(_part(report, "verdict").get("slug", "")),
    )


def _ended(end: dict[str, Any]) -> str:
    how, status = str(end.get("how", "")), end.get("status")
    if end.get("exception"):
        return str(end["exception"])
    if how == "signal" and isinstance(status, int):
        return f"signal {-status}"
    return f"exit {status}" if how == "exit" else how


def _part(report: dict[str, Any], name: str) -> dict[str, Any]:
    part = report.get(name)
    return part if isinstance(part, dict) else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
