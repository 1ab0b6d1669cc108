"""Edits of what leaves a model: an activation behind its last layer, the sign of its loss, a sum in the place of a mean."""

from __future__ import annotations

import ast
from typing import Any

from lossdoctor.core.run import Location, Training
from lossdoctor.trials.source import Source, at, called, calls

Value = dict[str, Any]
_ACTIVATIONS = ("sigmoid", "tanh", "relu", "softmax", "softplus", "hardtanh", "relu6", "exp")


def _mean(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Take the mean where the one sum is asked for by name."""
    given = [each.value for call in calls(source) for each in call.keywords if each.arg == "reduction"]
    sums = [each for each in given if isinstance(each, ast.Constant) and each.value == "sum"]
    return source.replaced(sums[0], '"mean"') if len(sums) == 1 else None


def _sign(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Take away the minus that the loss is assigned with."""
    statement = at(source, training.where("loss"))
    negated = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(negated, ast.UnaryOp) or not isinstance(negated.op, ast.USub):
        return None
    return source.replaced(negated, source.segment(negated.operand))


def _last(source: Source, value: Value, training: Training, where: Location | None) -> str | None:
    """Return what the last activation of the one `forward` is given."""
    ends = [
        node.body[-1] for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef) and node.name == "forward" and len(node.body)
    ]
    value_of = ends[0].value if len(ends) == 1 and isinstance(ends[0], ast.Return) else None
    if not isinstance(value_of, ast.Call) or called(value_of) not in _ACTIVATIONS:
        return None
    owner = source.segment(value_of.func).rpartition(".")[0]
    as_function = not owner or owner.split(".")[-1] in ("torch", "F", "functional")
    inner = value_of.args[0] if as_function and value_of.args else value_of.func
    inner = inner.value if inner is value_of.func and isinstance(inner, ast.Attribute) else inner
    return None if owner == "self" else source.replaced(value_of, source.segment(inner))


OUTPUTS = {"mean_loss": _mean, "negate_loss": _sign, "drop_last_activation": _last}
