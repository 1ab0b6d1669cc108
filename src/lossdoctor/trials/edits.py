"""The cure as an edit of the user's source, where the place is known and the edit is plain."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from lossdoctor.core.run import Location, Series, Training
from lossdoctor.trials.edits_of_calls import CALLS
from lossdoctor.trials.edits_of_loops import LOOPS
from lossdoctor.trials.edits_of_outputs import OUTPUTS
from lossdoctor.trials.origin import number_behind
from lossdoctor.trials.source import Source, at, blocks, called, calls, diff, made, optimizer_name, read_source

Value = dict[str, Any]
Edit = Callable[[Source, Value, Training, "Location | None"], "str | None"]


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


def _clear(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    step, optimizer = at(source, training.where("step")), optimizer_name(source, training)
    return source.inserted(step, f"{optimizer}.zero_grad()", after=True) if step and optimizer else None


def _step(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    backward, optimizer = at(source, training.where("backward")), optimizer_name(source, training)
    if backward is None or not optimizer or not value["parameters"].get("idle") or f"{optimizer}.step(" in source.text:
        return None  # a step that is there and never taken is not mended by another one
    block = next(block for block in blocks(source.tree) if any(each.lineno == backward.lineno for each in block))
    following = block[[each.lineno for each in block].index(backward.lineno) + 1 :]
    clipping = next((each for each in following if "clip_grad" in source.segment(each)), None)
    return source.inserted(clipping or backward, f"{optimizer}.step()", after=True)


def _rate(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Change the rate where it is written: in the call, as a constant, as a default of a function or of the command line."""
    call = made(source, (training.fact("optimizer") or {}).get("name", ""))
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "lr"), None) if call else None
    if given is None and call is not None and len(call.args) > 1:
        given = call.args[1]
    number = number_behind(source, given)
    rate = number.value if number is not None else None
    if number is None or not isinstance(rate, int | float) or not _is_used(float(rate), training):
        return None
    return source.replaced(number, f"{rate * value['parameters']['factor']:.1g}")


def _is_used(rate: float, training: Training) -> bool:
    """Tell whether a rate in the source is the one that the run had: a command line may have given another."""
    rates = training.signals.get("lr", Series.of([])).finite()
    groups = (training.fact("optimizer") or {}).get("groups") or ()
    told = [each[name] for each in groups for name in ("lr", "initial_lr") if isinstance(each.get(name), int | float)]
    known = [*told, *([rates.first, float(rates.values.max())] if len(rates) else [])]
    return any(abs(rate - float(each)) <= 1e-6 * abs(rate) for each in known)


def _logits(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    found = [call for call in calls(source) if called(call).lower() in ("softmax", "sigmoid")]
    if len(found) != 1:
        return None
    call, owner = found[0], source.segment(found[0].func).rpartition(".")[0]
    if called(call)[0].isupper():
        return source.replaced(call, f"{owner}.Identity()") if owner else None
    as_function = not owner or owner.split(".")[-1] in ("torch", "F", "functional")
    inner = call.args[0] if as_function else call.func.value if isinstance(call.func, ast.Attribute) else None
    return source.replaced(call, source.segment(inner)) if inner is not None else None


def _shape(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    statement = at(source, where or training.where("loss") or training.where("forward"))
    for node in ast.walk(statement) if statement else ():
        pair: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            pair = (node.left, node.right)
        elif isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
            pair = node.args
        simple = [isinstance(each, ast.Name | ast.Attribute | ast.Subscript) for each in pair]
        if any(simple):
            model, other = (pair[1], pair[0]) if simple[1] else (pair[0], pair[1])
            inner = source.segment(other)
            inner = f"({inner})" if isinstance(other, ast.BinOp | ast.UnaryOp) else inner
            return source.replaced(other, f"{inner}.reshape({source.segment(model)}.shape)")
    return None


def _train_mode(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    forward = at(source, training.where("forward"))
    methods = [call.func for call in calls(source) if isinstance(call.func, ast.Attribute) and call.func.attr == "eval"]
    used = {name for name in map(source.segment, [method.value for method in methods]) if forward and f"{name}(" in source.segment(forward)}
    return source.inserted(forward, f"{used.pop()}.train()", after=False) if forward is not None and len(used) == 1 else None


_EDITS: dict[str, Edit] = {
    "clear_gradients": _clear,
    "step_after_backward": _step,
    "scale_rate": _rate,
    "pass_logits": _logits,
    "same_shape": _shape,
    "train_mode": _train_mode,
    **CALLS,
    **LOOPS,
    **OUTPUTS,
}

__all__ = ["Source", "diff", "edited", "read_source"]
