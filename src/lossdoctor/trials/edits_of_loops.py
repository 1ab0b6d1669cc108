"""Edits of the loops around a model: validation without a graph, losses kept as numbers, losses divided."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from lossdoctor.core.run import Location, Training
from lossdoctor.trials.source import Source, at, blocks, called, calls

Value = dict[str, Any]
_OFF = ("no_grad", "inference_mode", "set_grad_enabled")
_REDUCTIONS = ("mean", "sum")


def _no_grad(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Put `torch.no_grad()` around what follows `model.eval()`: as a decorator where that is all of a function."""
    if not any(isinstance(each, ast.Import) and any(name.name == "torch" and not name.asname for name in each.names) for each in ast.walk(source.tree)):  # fmt: skip  # noqa: E501
        return None
    found = [(block, index) for block in blocks(source.tree) for index, each in enumerate(block) if _switches(each, "eval")]
    found = [pair for pair in found if (region := _region(*pair)) and not _has(source, region, (*_OFF, "backward"))]
    if len(found) != 1:
        return None
    block, index = found[0]
    region = _region(block, index)
    function = next((each for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef) and _same(each.body, block)), None)
    if function is not None and region[-1].lineno == block[-1].lineno and not _has(source, block, ("backward",)):
        first = function.decorator_list[0].lineno if function.decorator_list else function.lineno
        return _line(source, first, "@torch.no_grad()")
    return _indented(source, region, "with torch.no_grad():")


def _switches(statement: ast.stmt, mode: str) -> bool:
    """Tell whether a statement is `model.eval()` or `model.train()`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and called(call) == mode and not call.args and isinstance(call.func, ast.Attribute)


def _region(block: Sequence[ast.stmt], index: int) -> list[ast.stmt]:
    """Return what follows a statement, up to the return to training mode."""
    found: list[ast.stmt] = []
    for each in block[index + 1 :]:
        if _switches(each, "train"):
            break
        found.append(each)
    return found


def _has(source: Source, region: Sequence[ast.stmt], words: Sequence[str]) -> bool:
    return any(f"{word}(" in source.segment(each) for each in region for word in words)


def _same(one: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> bool:
    return (one[0].lineno, one[0].col_offset) == (other[0].lineno, other[0].col_offset)


def _line(source: Source, before: int, text: str) -> str:
    lines = source.text.splitlines(keepends=True)
    own = lines[before - 1]
    return "".join([*lines[: before - 1], f"{own[: len(own) - len(own.lstrip())]}{text}\n", *lines[before - 1 :]])


def _indented(source: Source, region: Sequence[ast.stmt], head: str) -> str | None:
    """Return the source with a region within a block; None where a text over several lines would change by it."""
    texts = (each for part in region for each in ast.walk(part) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    lines = source.text.splitlines(keepends=True)
    begin, end = region[0].lineno - 1, max(each.end_lineno or each.lineno for each in region)
    if any(each.lineno != each.end_lineno for each in texts) or lines[begin][: region[0].col_offset].strip():
        return None
    indent = lines[begin][: region[0].col_offset]
    inner = [f"    {line}" if line.strip() else line for line in lines[begin:end]]
    return "".join([*lines[:begin], f"{indent}{head}\n", *inner, *lines[end:]])


def _item(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Add up and keep numbers: `.item()` of the loss, and of what else is one number by a mean or a sum."""
    backward = at(source, training.where("backward"))
    loss = _loss_name(backward)
    if not loss or backward is None:
        return None
    numbers = {loss, *_numbers(source)}
    kept = sorted((node for node in _kept(source, backward) if node.id in numbers), key=lambda node: (-node.lineno, -node.col_offset))
    text = source.text
    for node in kept:  # the last first, so that the places of the others hold
        text = Source(source.path, text).replaced(node, f"{node.id}.item()")
    return text if kept else None


def _loss_name(backward: ast.stmt | None) -> str:
    """Return the name that backward is called on."""
    for node in ast.walk(backward) if backward is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            names = {each.id for each in ast.walk(node.func.value) if isinstance(each, ast.Name)}
            plain = isinstance(node.func.value, ast.Name | ast.BinOp)
            return sorted(names)[0] if plain and (len(names) == 1 or isinstance(node.func.value, ast.Name)) else _left(node.func.value)
    return ""


def _left(node: ast.expr) -> str:
    """Return the name at the left of a quotient or a product, such as `loss / steps`."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def _numbers(source: Source) -> set[str]:
    """Return the names of what is assigned a mean or a sum over everything."""
    found = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_number(node.value):
            found.add(node.targets[0].id)
    return found


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCTIONS and not node.args


def _kept(source: Source, backward: ast.stmt) -> list[ast.Name]:
    """Return names that are added to a total, or put into a list, in the block of backward behind it or in the blocks within."""
    block = next(block for block in blocks(source.tree) if any(each.lineno == backward.lineno for each in block))
    found: list[ast.Name] = []
    for statement in (each for each in block if each.lineno >= backward.lineno):
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                found += _terms(node.value)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
                own = source.segment(node.targets[0])
                found += _terms(node.value.right) if source.segment(node.value.left) == own else []
            elif isinstance(node, ast.Call) and called(node) == "append" and len(node.args) == 1:
                found += _terms(node.args[0])
    return found


def _terms(node: ast.expr) -> list[ast.Name]:
    """Return the names in a product or a quotient, which is all that a total is given of a tensor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return [*_terms(node.left), *_terms(node.right)]
    return [node] if isinstance(node, ast.Name) else []


def _divide(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    backward = at(source, training.where("backward"))
    found = [call for call in calls(source) if backward and call.lineno == backward.lineno and called(call) == "backward"]
    owner = found[0].func.value if len(found) == 1 and isinstance(found[0].func, ast.Attribute) else None
    if not isinstance(owner, ast.Name | ast.Attribute | ast.Call):
        return None
    return source.replaced(owner, f"({source.segment(owner)} / {value['parameters']['parts']})")


def _detach(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Detach the state that is handed to the model, before it is; what holds it was named by the run."""
    forward = at(source, training.where("forward"))
    keepers = training.run_facts.get("keepers")
    names = {str(each.get("name")) for each in keepers if isinstance(each, dict)} if isinstance(keepers, list) else set()
    given = [
        node.id
        for call in ast.walk(forward or ast.Pass())
        if isinstance(call, ast.Call)
        for node in (*call.args, *(each.value for each in call.keywords))
        if isinstance(node, ast.Name) and node.id in names
    ]
    kinds = {called(call).removesuffix("Cell") for call in calls(source)} & {"LSTM", "GRU", "RNN"}
    if forward is None or len(set(given)) != 1 or len(kinds) != 1:
        return None
    name = given[0]
    cut = f"tuple(each.detach() for each in {name})" if kinds == {"LSTM"} else f"{name}.detach()"
    return source.inserted(forward, f"{name} = {name} if {name} is None else {cut}", after=False)


LOOPS = {
    "detach_state": _detach,
    "no_grad_in_validation": _no_grad,
    "detach_losses": _item,
    "divide_losses": _divide,
}
