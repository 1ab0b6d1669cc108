"""Treatments: changes to a run that leave its source alone. One file each; the folder is the registry.

A treatment is a value, a name with parameters (`core.fault.Treatment`). Its file `<name>.py` has `apply(hooks, ...)`, which
interprets it inside the repeated script's process once torch is imported, and takes its parameters by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from lossdoctor.core.fault import Treatment

if TYPE_CHECKING:
    from lossdoctor.trials.hooks import Hooks


@cache
def names() -> frozenset[str]:
    """Return the names of all treatments.

    Example:
        >>> "clear_gradients" in names()
        True
    """
    return frozenset(info.name for info in pkgutil.iter_modules(__path__))


def usual(name: str) -> Treatment:
    """Return what a treatment should move, and its safety: what its file says where no fault has it, else the fewest claims.

    Example:
        >>> usual("shuffle").moves
        'loss'
    """
    told: Treatment = getattr(importlib.import_module(f"{__name__}.{name}"), "USUAL", Treatment(name))
    return told


def apply(treatments: Sequence[Mapping[str, Any]], finish: Callable[[], object]) -> Hooks:
    """Apply treatments to this process, in order; its record is told which of them found something to change (the fact `treated`).

    Args:
        treatments: each with `name` and `parameters`.
        finish: ends the process.

    Raises:
        KeyError: where a name is not known.
    """
    from lossdoctor.launch import script
    from lossdoctor.trials.hooks import Hooks

    acted: list[str] = []

    def tell(name: str) -> None:
        acted.append(name)
        if script.recorder is not None:
            script.recorder.add({"kind": "fact", "track": None, "name": "treated", "value": list(acted)})

    hooks = Hooks(tell, finish, script.recorder.unseen if script.recorder is not None else nullcontext)
    for treatment in treatments:
        apply_one(hooks, treatment["name"], treatment.get("parameters", {}))
    return hooks


def apply_one(hooks: Hooks, name: str, parameters: Mapping[str, Any]) -> None:
    """Apply one treatment through given hooks.

    Raises:
        KeyError: where the name is not known.
    """
    if name not in names():
        raise KeyError(name)
    importlib.import_module(f"{__name__}.{name}").apply(hooks, **parameters)
