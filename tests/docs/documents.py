"""What the tests of the documents share: the project's folder, its documents and their code blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def documents() -> list[Path]:
    """Return all Markdown files of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced code blocks of one language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
