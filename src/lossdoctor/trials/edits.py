"""The cure as an edit of the user's source, where the place is known and the edit is plain."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossdoctor.core.run import Location, Training

Value = dict[str, Any]


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


def edited(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Return the source with the edit that does what a treatment does; None where no plain edit is known.

    Args:
        source: the user's file.
        value: the treatment.
        training: of the run.
        where: place that the fault named.
    """
    edit = _EDITS.get(value["name"])
    try:
        text = edit(source, value, training, where) if edit else None
        return text if text is None or ast.parse(text) else None
    except (SyntaxError, ValueError, IndexError):
        return None


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


# -- the edits, by treatment -----------------------------------------------------------------------------------------------


def _clear(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    step, optimizer = _at(source, training.where("step")), _optimizer(source, training)
    return source.inserted(step, f"{optimizer}.zero_grad()", after=True) if step and optimizer else None


def _step(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    backward, optimizer = _at(source, training.where("backward")), _optimizer(source, training)
    if backward is None or not optimizer or not value["parameters"].get("idle") or f"{optimizer}.step(" in source.text:
        return None  # a step that is there and never taken is not mended by another one
    block = next(block for block in _blocks(source.tree) if any(each.lineno == backward.lineno for each in block))
    following = block[[each.lineno for each in block].index(backward.lineno) + 1 :]
    clipping = next((each for each in following if "clip_grad" in source.segment(each)), None)
    return source.inserted(clipping or backward, f"{optimizer}.step()", after=True)


def _rate(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    rates = training.series("lr").finite()
    call = _made(source, (training.fact("optimizer") or {}).get("name", ""))
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "lr"), None) if call else None
    if isinstance(given, ast.Name):
        assigned = [node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and source.segment(node.targets[0]) == given.id]
        given = assigned[0].value if len(assigned) == 1 else None
    if not isinstance(given, ast.Constant) or not isinstance(given.value, int | float) or not len(rates):
        return None
    return source.replaced(given, f"{given.value * value['parameters']['factor']:.1g}")


def _logits(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    found = [call for call in _calls(source) if _called(call).lower() in ("softmax", "sigmoid")]
    if len(found) != 1:
        return None
    call, owner = found[0], source.segment(found[0].func).rpartition(".")[0]
    if _called(call)[0].isupper():
        return source.replaced(call, f"{owner}.Identity()") if owner else None
    as_function = not owner or owner.split(".")[-1] in ("torch", "F", "functional")
    inner = call.args[0] if as_function else call.func.value if isinstance(call.func, ast.Attribute) else None
    return source.replaced(call, source.segment(inner)) if inner is not None else None


def _shape(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    statement = _at(source, where or training.where("loss") or training.where("forward"))
    for node in ast.walk(statement) if statement else ():
        pair: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            pair = (node.left, node.right)
        elif isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
            pair = node.args
        simple = [isinstance(each, ast.Name | ast.Attribute) for each in pair]
        if any(simple):
            model, other = (pair[1], pair[0]) if simple[1] else (pair[0], pair[1])
            inner = source.segment(other)
            inner = f"({inner})" if isinstance(other, ast.BinOp | ast.UnaryOp) else inner
            return source.replaced(other, f"{inner}.reshape({source.segment(model)}.shape)")
    return None


def _train_mode(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    forward = _at(source, training.where("forward"))
    methods = [call.func for call in _calls(source) if isinstance(call.func, ast.Attribute) and call.func.attr == "eval"]
    used = {name for name in map(source.segment, [method.value for method in methods]) if forward and f"{name}(" in source.segment(forward)}
    return source.inserted(forward, f"{used.pop()}.train()", after=False) if forward is not None and len(used) == 1 else None


_EDITS: dict[str, Callable[[Source, Value, Training, Location | None], str | None]] = {
    "clear_gradients": _clear,
    "step_after_backward": _step,
    "scale_rate": _rate,
    "pass_logits": _logits,
    "same_shape": _shape,
    "train_mode": _train_mode,
}


# -- finding places --------------------------------------------------------------------------------------------------------


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _at(source: Source, where: Location | None) -> ast.stmt | None:
    """Return the innermost statement of a line."""
    if where is None or Path(where.file).name != Path(source.path).name:
        return None
    holding = [each for block in _blocks(source.tree) for each in block if each.lineno <= where.line <= (each.end_lineno or each.lineno)]
    return min(holding, key=lambda each: (each.end_lineno or each.lineno) - each.lineno, default=None)


def _calls(source: Source) -> Iterator[ast.Call]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _made(source: Source, kind: str) -> ast.Call | None:
    """Return the one call that makes an optimiser of a class; None where there are none or several."""
    calls = [call for call in _calls(source) if kind and _called(call) == kind]
    return calls[0] if len(calls) == 1 else None


def _optimizer(source: Source, training: Training) -> str:
    """Return what the script calls its optimiser; empty where that is not clear."""
    idle = next((each.get("name", "") for each in training.fact("optimizers_idle") or ()), "")
    call = _made(source, (training.fact("optimizer") or {}).get("name") or idle)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and call is not None and len(node.targets) == 1:
            value = node.value
            if isinstance(value, ast.Call) and (value.lineno, value.col_offset) == (call.lineno, call.col_offset):
                return source.segment(node.targets[0])
    return ""
