"""Edits that give one call of the user's source another argument: a loader, an optimiser, a recurrent layer, attention."""

from __future__ import annotations

import ast
from typing import Any

from lossdoctor.core.run import Location, Training
from lossdoctor.trials.source import Source, at, blocks, called, calls, made

Value = dict[str, Any]
_RECURRENT = ("RNN", "LSTM", "GRU")


def with_argument(source: Source, call: ast.Call, name: str, text: str) -> str:
    """Return the source with a named argument of a call set to a text.

    Example:
        >>> source = Source("a.py", "step(x, lr=1)")
        >>> with_argument(source, next(calls(source)), "eps", "2")
        'step(x, lr=1, eps=2)'
    """
    given = next((each.value for each in call.keywords if each.arg == name), None)
    if given is not None:
        return source.replaced(given, text)
    own = source.segment(call)
    inner = own[: own.rindex(")")].rstrip()
    comma = "" if inner.endswith(("(", ",")) else ","
    space = "" if inner.endswith("(") else " "
    return source.replaced(call, f"{inner}{comma}{space}{name}={text})")


def _batch_first(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    found = [call for call in calls(source) if called(call) in _RECURRENT and len(call.args) < 5]
    if len(found) != 1 or any(each.arg is None for each in found[0].keywords):
        return None
    given = next((each.value for each in found[0].keywords if each.arg == "batch_first"), ast.Constant(False))
    return with_argument(source, found[0], "batch_first", str(not given.value)) if isinstance(given, ast.Constant) else None


def _causal(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Ask the function for a causal mask; that of a module needs a mask of its own, which is no plain edit."""
    found = [call for call in calls(source) if called(call) == "scaled_dot_product_attention"]
    masked = len(found) == 1 and (len(found[0].args) > 3 or any(each.arg == "attn_mask" for each in found[0].keywords))
    return with_argument(source, found[0], "is_causal", "True") if len(found) == 1 and not masked else None


def _shuffle(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    loader = _loader(source, training)
    sampled = loader is not None and any(each.arg in ("sampler", "batch_sampler", "shuffle", None) for each in loader.keywords)
    own = loader is not None and any(each.arg == "shuffle" for each in loader.keywords)
    return with_argument(source, loader, "shuffle", "True") if loader is not None and (own or not sampled) else None


def _workers(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    loader = _loader(source, training)
    return with_argument(source, loader, "num_workers", str(value["parameters"]["workers"])) if loader is not None else None


def _loader(source: Source, training: Training) -> ast.Call | None:
    """Return the call that makes the loader which the training's loop goes through; the only one where the loop does not tell."""
    place = training.where("loader")
    made_here = [call for call in calls(source) if called(call) == "DataLoader"]
    statement = at(source, place) if place is not None else None
    told = statement.iter if isinstance(statement, ast.For) else None
    names = {each.id for each in ast.walk(told) if isinstance(each, ast.Name)} if told is not None else set()
    assigned = [
        call
        for block in blocks(source.tree)
        for each in block
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id in names
        for call in made_here
        if isinstance(each.value, ast.Call) and (call.lineno, call.col_offset) == (each.value.lineno, each.value.col_offset)
    ]
    found = assigned or made_here
    return found[0] if len({each.lineno for each in found}) == 1 else None


def _option(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    call = made(source, (training.fact("optimizer") or {}).get("name", ""))
    parameters = value["parameters"]
    return with_argument(source, call, parameters["option"], repr(parameters["value"])) if call is not None else None


def _module_list(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Hold layers in a ModuleList that a module holds in a plain list."""
    found = [
        (each.value, source.segment(base))
        for holder in ast.walk(source.tree)
        if isinstance(holder, ast.ClassDef)
        for base in holder.bases
        if source.segment(base).split(".")[-1] == "Module"
        for each in ast.walk(holder)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.List | ast.ListComp) and _holds_layers(source, holder, each)
    ]
    if len(found) != 1:
        return None
    plain, base = found[0]
    inner = "" if isinstance(plain, ast.List) and not plain.elts else source.segment(plain)
    return source.replaced(plain, f"{base}List({inner})")


def _holds_layers(source: Source, holder: ast.ClassDef, assigned: ast.Assign) -> bool:
    """Tell whether a list that an object keeps is made of new objects, or such are appended to it."""
    name = source.segment(assigned.targets[0])
    appended = [
        call.args[0]
        for call in ast.walk(holder)
        if isinstance(call, ast.Call) and source.segment(call.func) == f"{name}.append" and len(call.args) == 1
    ]
    value = assigned.value
    elements = value.elts if isinstance(value, ast.List) else [value.elt] if isinstance(value, ast.ListComp) else []
    made_here = [*elements, *appended]
    return (
        name.startswith("self.")
        and bool(made_here)
        and all(isinstance(each, ast.Call) and called(each)[:1].isupper() for each in made_here)
    )


CALLS = {
    "hold_all_parameters": _module_list,
    "batch_first": _batch_first,
    "causal_mask": _causal,
    "shuffle": _shuffle,
    "load_in_workers": _workers,
    "set_option": _option,
}
