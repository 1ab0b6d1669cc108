"""Score `lossdoctor check` on folders of real failed scripts, their mended twins and healthy ones.

Run it with `python -m lossdoctor.bench.checks FOLDER`. A case is a folder with `case.json` (`expected`: a list of causes, each a list of
slugs that name it; empty for a healthy one) and `broken.py` (with `fixed.py`, the same mended) or `script.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

LIMIT_SECONDS = 300.0  # after which a check hangs
BAR_SECONDS = 40.0  # the project's, on two free cores
SCRIPTS = ("broken.py", "fixed.py", "script.py")
HEAD = "| case | script | score | seconds | named |\n|---|---|---|---|---|"
GOOD = ("HIT", "clean")


@dataclass(frozen=True)
class Scored:
    """Hold what a check said of one script.

    Args:
        score: `HIT` (all causes are present and the verdict is one), `PART` (some are), `miss`, `clean` (healthy and mended scripts:
            nothing above advice), `ALARM`, or `ERROR` (no report).
        named: present findings above advice, the verdict where there is none.
    """

    case: str
    script: str
    score: str
    seconds: float
    named: str

    def row(self) -> str:
        """Return it as a row of the table."""
        return f"| {self.case} | {self.script} | {self.score} | {self.seconds:.0f} | {self.named} |"


def judge(report: Mapping[str, Any], expected: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return the score of a report and what it names; `expected` is empty for a healthy script.

    Example:
        >>> finding = {"slug": "lr-too-high", "status": "present", "severity": "error"}
        >>> judge({"verdict": {"slug": "lr-too-high"}, "findings": [finding]}, [["lr-too-high"]])
        ('HIT', 'lr-too-high')
    """
    verdict = report["verdict"]["slug"]
    present = [each["slug"] for each in report["findings"] if each["status"] == "present" and each["severity"] != "advice"]
    named = " + ".join(present) or verdict
    if not expected:
        return ("ALARM" if present else "clean"), named
    there = {each["slug"] for each in report["findings"] if each["status"] == "present"}
    found = [bool(there & set(cause)) for cause in expected]
    if all(found) and any(verdict in cause for cause in expected):
        return "HIT", named
    return ("PART" if any(found) else "miss"), named


def score(case: Path, script: str) -> Scored:
    """Check one script of a case in a copy of its folder."""
    expected = json.loads((case / "case.json").read_text(encoding="utf-8"))["expected"] if script == "broken.py" else []
    with tempfile.TemporaryDirectory(prefix="lossdoctor-bench-") as scratch:
        work = Path(scratch) / case.name
        shutil.copytree(case, work, ignore=shutil.ignore_patterns("case.json"))
        began = time.perf_counter()
        line = [sys.executable, "-m", "lossdoctor", "check", "--quiet", "--json", "report.json", "--out", "runs", script]
        try:
            done = subprocess.run(line, cwd=work, env=_one_thread(), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
            said = (done.stderr.strip().splitlines() or ["no report"])[-1]
        except subprocess.TimeoutExpired:
            said = f"no end within {LIMIT_SECONDS:.0f} s"
        seconds = time.perf_counter() - began
        report = work / "report.json"
        told = judge(json.loads(report.read_text(encoding="utf-8")), expected) if report.exists() else ("ERROR", said)
    return Scored(case.name, script, told[0], seconds, told[1])


def _one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def scripts(folder: Path, only: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the cases of a folder with each of their scripts."""
    for case in sorted(folder.iterdir()):
        if (case / "case.json").is_file() and (not only or any(part in case.name for part in only)):
            yield from ((case, script) for script in SCRIPTS if (case / script).is_file())


def summary(scored: Sequence[Scored]) -> str:
    """Say in lines how many scripts of each kind came out as they should, and in which time.

    Example:
        >>> summary([Scored("a", "broken.py", "HIT", 31.0, "lr-too-high")])
        'broken.py: 1 of 1 HIT\\n1 of 1 within 40 s'
    """
    lines = []
    for script, good in zip(SCRIPTS, (GOOD[0], GOOD[1], GOOD[1]), strict=True):
        of_kind = [each for each in scored if each.script == script]
        lines += [f"{script}: {sum(each.score == good for each in of_kind)} of {len(of_kind)} {good}"] if of_kind else []
    return "\n".join([*lines, f"{sum(each.seconds <= BAR_SECONDS for each in scored)} of {len(scored)} within {BAR_SECONDS:.0f} s"])


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="", metavar="TEXTS", help="Only cases with one of these in their name, separated by commas.")
@click.option("--table", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the table as Markdown.")
def main(folder: Path, only: str, table: Path | None) -> None:
    """Check the scripts of a folder one after the other, and score what is named."""
    scored: list[Scored] = []
    click.echo(HEAD)
    for case, script in scripts(folder, [part for part in only.split(",") if part]):
        scored.append(score(case, script))
        click.echo(scored[-1].row())
        if table is not None:  # after each: whoever ends it early keeps what there is
            table.write_text("\n".join((HEAD, *(each.row() for each in scored), "", summary(scored), "")), encoding="utf-8")
    click.echo(summary(scored))


if __name__ == "__main__":
    main()
