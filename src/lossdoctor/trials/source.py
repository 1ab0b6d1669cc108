"""A file of the user's source: its parts, and where things stand in it."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lossdoctor.core.run import Location, Training


@dataclass(frozen=True)
class Source:
    """Hold a file of the user's source."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """The source, parsed."""
        return ast.parse(self.text)

    def segment(self, node: ast.AST) -> str:
        """Return the text of a part of the source."""
        return ast.get_source_segment(self.text, node) or ""

    def replaced(self, node: ast.expr, text: str) -> str:
        """Return the source with another text in the place of an expression."""
        lines = self.text.encode().splitlines(keepends=True)  # columns count bytes
        assert node.end_lineno is not None
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + (node.end_col_offset or 0)
        return (self.text.encode()[:begin] + text.encode() + self.text.encode()[end:]).decode()

    def inserted(self, statement: ast.stmt, text: str, *, after: bool) -> str:
        """Return the source with a line before or after a statement, as deep as it."""
        lines = self.text.splitlines(keepends=True)
        indent = re.match(r"\s*", lines[statement.lineno - 1])
        at = (statement.end_lineno or statement.lineno) if after else statement.lineno - 1
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        return "".join([*lines[:at], f"{indent[0] if indent else ''}{text}\n", *lines[at:]])


def diff(source: Source, text: str) -> str:
    """Return the change as a unified diff.

    Example:
        >>> print(diff(Source("a.py", "x = 1\\n"), "x = 2\\n"), end="")
        --- a.py
        +++ a.py
        @@ -1 +1 @@
        -x = 1
        +x = 2
    """
    before, after = (part.splitlines(keepends=True) for part in (source.text, text))
    return "".join(difflib.unified_diff(before, after, source.path, source.path))


def read_source(path: str) -> Source | None:
    """Read a file of source; None where it cannot be read."""
    try:
        return Source(path, Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield every list of statements, outer ones first."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def at(source: Source, where: Location | None) -> ast.stmt | None:
    """Return the innermost statement of a line."""
    if where is None or Path(where.file).name != Path(source.path).name:
        return None
    holding = [each for block in blocks(source.tree) for each in block if each.lineno <= where.line <= (each.end_lineno or each.lineno)]
    return min(holding, key=lambda each: (each.end_lineno or each.lineno) - each.lineno, default=None)


def calls(source: Source) -> Iterator[ast.Call]:
    """Yield every call."""
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    """Return the last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def made(source: Source, kind: str) -> ast.Call | None:
    """Return the one call that makes an optimiser of a class; None where there are none or several."""
    found = [call for call in calls(source) if kind and called(call) == kind]
    return found[0] if len(found) == 1 else None


def optimizer_name(source: Source, training: Training) -> str:
    """Return what the script calls its optimiser; empty where that is not clear."""
    idle = next((each.get("name", "") for each in training.fact("optimizers_idle") or ()), "")
    call = made(source, (training.fact("optimizer") or {}).get("name") or idle)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and call is not None and len(node.targets) == 1:
            value = node.value
            if isinstance(value, ast.Call) and (value.lineno, value.col_offset) == (call.lineno, call.col_offset):
                return source.segment(node.targets[0])
    return ""
