"""Where a number of the user's source is written: in place, as a constant, as a default of a function or of the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lossdoctor.trials.source import Source, called, calls

_MOST = 5  # names that lead to one another


def number_behind(source: Source, node: ast.expr | None, depth: int = 0) -> ast.Constant | None:
    """Return the one literal number that an expression comes from; None where there are none, several, or it is worked out.

    Args:
        source: the file.
        node: a number, a name, an attribute (`args.lr`) or an item (`settings["lr"]`).
        depth: of names that led here.

    Example:
        >>> source = Source("train.py", "RATE = 0.1\\nstep(RATE)")
        >>> call = source.tree.body[1].value
        >>> number_behind(source, call.args[0]).value
        0.1
    """
    if isinstance(node, ast.Constant):
        return node if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if node is None or depth > _MOST:
        return None
    if isinstance(node, ast.Name):
        found = list(_given(source, node)) or list(_assigned(source, node.id))
    elif isinstance(node, ast.Attribute):
        found = [*_options(source, node.attr), *_fields(source, node.attr)]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        found = list(_items(source, source.segment(node.value), node.slice.value))
    else:
        return None
    return number_behind(source, found[0], depth + 1) if len(found) == 1 else None


def _assigned(source: Source, name: str) -> Iterator[ast.expr]:
    """Yield what is assigned to a name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets):
            yield node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield from [node.value] if node.value is not None and not _in_class(source, node) else []


def _given(source: Source, name: ast.Name) -> Iterator[ast.expr]:
    """Yield what the parameter of that name of the function around is given: by its calls, or its default where none gives it."""
    found = _function_around(source, name)
    if found is None:
        return
    function, holder = found
    arguments = [*function.args.posonlyargs, *function.args.args]
    place = next((index for index, each in enumerate(arguments) if each.arg == name.id), None)
    called_as = holder if function.name == "__init__" else function.name
    skipped = int(bool(holder))  # self
    passed = []
    for call in calls(source):
        if called(call) == called_as:
            by_name = [each.value for each in call.keywords if each.arg == name.id]
            by_place = call.args[place - skipped : place - skipped + 1] if place is not None else []
            passed += by_name or by_place
    defaults = dict(zip([each.arg for each in arguments][::-1], function.args.defaults[::-1], strict=False))
    defaults |= {each.arg: value for each, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if value}
    yield from passed or ([defaults[name.id]] if name.id in defaults else [])


def _function_around(source: Source, name: ast.Name) -> tuple[ast.FunctionDef, str] | None:
    """Return the innermost function around a name that has it as a parameter, and the class that the function belongs to."""
    tree = source.tree
    holders = {id(part): each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for part in each.body}
    around = [
        (each, holders.get(id(each), ""))
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef)
        and each.lineno <= name.lineno <= (each.end_lineno or each.lineno)
        and name.id in {part.arg for part in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)}
    ]
    return max(around, key=lambda pair: pair[0].lineno, default=None)


def _options(source: Source, name: str) -> Iterator[ast.expr]:
    """Yield the defaults of a command line's option."""
    for call in calls(source):
        if called(call) != "add_argument":
            continue
        given = {each.arg: each.value for each in call.keywords}
        told = given.get("dest")
        words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        long = next((word for word in words if word.startswith("--")), words[0] if words else "")
        dest = told.value if isinstance(told, ast.Constant) else long.lstrip("-").replace("-", "_")
        if dest == name and "default" in given:
            yield given["default"]


def _fields(source: Source, name: str) -> Iterator[ast.expr]:
    """Yield what a field of a class is given in its body, or by name where an object is made."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                target = part.target if isinstance(part, ast.AnnAssign) else part.targets[0] if isinstance(part, ast.Assign) else None
                if isinstance(target, ast.Name) and target.id == name and isinstance(part, ast.AnnAssign | ast.Assign) and part.value:
                    yield part.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == name:
            yield node.value
        elif isinstance(node, ast.Call) and called(node) in ("Namespace", "SimpleNamespace"):
            yield from (each.value for each in node.keywords if each.arg == name)


def _items(source: Source, owner: str, key: object) -> Iterator[ast.expr]:
    """Yield what stands under a key of a dictionary that is written out, or set later."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if source.segment(target) == owner and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            yield from (value for each, value in pairs if isinstance(each, ast.Constant) and each.value == key)
        elif source.segment(target) == owner and isinstance(node.value, ast.Call) and called(node.value) == "dict":
            yield from (each.value for each in node.value.keywords if each.arg == key)
        elif isinstance(target, ast.Subscript) and source.segment(target.value) == owner and isinstance(target.slice, ast.Constant):
            yield from [node.value] if target.slice.value == key else []


def _in_class(source: Source, node: ast.stmt) -> bool:
    return any(isinstance(each, ast.ClassDef) and any(part.lineno == node.lineno for part in each.body) for each in ast.walk(source.tree))
