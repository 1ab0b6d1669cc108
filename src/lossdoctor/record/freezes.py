"""Find parts that a script froze or thawed by an attribute of the module, which torch does not look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

MOST_NAMES = 10


def flagged(modules: Iterable[nn.Module], held: Sequence[Tensor], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the modules whose attribute `requires_grad` says other than their parameters.

    Args:
        modules: outermost ones.
        held: parameters of an optimiser.
        names: their names, as many.

    Returns:
        For each: its class, the value that was set, and of its parameters that are the other way round the names (of those that the
        optimiser holds) and the number. A class whose own constructor sets such an attribute means something else by it.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.requires_grad = False
        >>> flagged([layer], list(layer.parameters()), ["weight", "bias"])
        [{'module': 'Linear', 'value': False, 'parameters': ['weight', 'bias'], 'count': 2}]
    """
    known = {id(parameter): name for parameter, name in zip(held, names, strict=True)}
    found, done = [], set()
    for module in (inner for outer in modules for inner in outer.modules()):
        value = vars(module).get("requires_grad")
        if not isinstance(value, bool) or id(module) in done or _own_setting(module):
            continue
        done.add(id(module))
        other = [parameter for parameter in module.parameters() if parameter.requires_grad is not value]
        if other:
            told = [known[id(parameter)] for parameter in other if id(parameter) in known]
            found.append({"module": type(module).__name__, "value": value, "parameters": told[:MOST_NAMES], "count": len(other)})
    return found


def _own_setting(module: nn.Module) -> bool:
    code = getattr(type(module).__init__, "__code__", None)
    return code is not None and "requires_grad" in code.co_names
