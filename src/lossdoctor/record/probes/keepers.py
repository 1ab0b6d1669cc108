"""Find the names in the user's source that hold graphs of earlier steps, and the lines that put them there."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import Tensor, nn

from lossdoctor.record.places import user_frame
from lossdoctor.record.probes.history import walk

MOST_NAMES = 5
_MOST_VALUES = 200  # of one frame that are looked at
_NODES = 200  # of one graph
_FIRST = 4  # of a list's elements


def keepers(before: int) -> list[dict[str, Any]]:
    """Return the names in the frames that called us whose tensors carry graphs older than a node number.

    Args:
        before: nodes up to this number belong to steps that are over.

    Returns:
        `name`, `file`, `line` (the one that last adds to the name in its function, or null) of each.
    """
    found: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < MOST_NAMES:
        if user_frame(frame) is frame:
            known = {(each["name"], each["file"]) for each in found}
            found += [each for each in _of_frame(frame, before) if (each["name"], each["file"]) not in known]
        frame = frame.f_back
    return found[:MOST_NAMES]


def _of_frame(frame: FrameType, before: int) -> Iterator[dict[str, Any]]:
    for name, value in _values(frame):
        if any(_old(tensor, before) for tensor in _sampled(value)):
            yield {"name": name, "file": frame.f_code.co_filename, "line": _line(frame, name)}


def _values(frame: FrameType) -> Iterator[tuple[str, Any]]:
    known = _locals(frame)
    yield from known.items()
    owner = known.get("self")
    if owner is not None and not isinstance(owner, nn.Module) and hasattr(owner, "__dict__"):
        yield from ((f"self.{name}", each) for name, each in list(vars(owner).items())[:_MOST_VALUES])


def _locals(frame: FrameType) -> dict[str, Any]:
    """Return the names of a frame; without a copy of them left in it, which would keep alive what the function lets go."""
    seen = frame.f_locals
    known = dict(list(seen.items())[-_MOST_VALUES:])
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(seen) is dict:  # a snapshot, as before Python 3.13
        seen.clear()
    return known


def _sampled(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    values = [*value[:_FIRST], *value[-1:]] if isinstance(value, list | tuple) else [value]
    flat = [each for one in values for each in (one[:_FIRST] if isinstance(one, list | tuple) else (one,))]
    return [each for each in flat if isinstance(each, Tensor) and each.grad_fn is not None]


def _old(tensor: Tensor, before: int) -> bool:
    return walk(tensor.grad_fn, _NODES)[0] <= before


def _line(frame: FrameType, name: str) -> int | None:
    """Return the last line of the function that adds to a name, or gives it a value."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    here = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == frame.f_code.co_name
    ]
    body: ast.AST = min(here, key=lambda node: abs(node.lineno - frame.f_code.co_firstlineno), default=tree)
    for place in (tree,) if name.startswith("self.") else (body, tree):  # an attribute may be added to in another method
        added = [node.lineno for node in ast.walk(place) if isinstance(node, ast.AugAssign | ast.Call) and _adds(node, name)]
        given = [node.lineno for node in ast.walk(place) if isinstance(node, ast.Assign) and _gives(node, name)]
        if added or given:
            return max(added, default=None) or max(given)
    return None


def _adds(node: ast.AugAssign | ast.Call, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is(node.target, name)
    function = node.func
    grows = isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "add", "update", "appendleft")
    return grows and isinstance(function, ast.Attribute) and _is(function.value, name)


def _is(node: ast.AST, name: str) -> bool:
    """Tell whether an expression is a name, or an element of what it names."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node) == name


def _gives(node: ast.Assign, name: str) -> bool:
    targets = [each for target in node.targets for each in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])]
    return any(ast.unparse(each) == name for each in targets)
