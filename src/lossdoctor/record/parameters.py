"""Know parameters for the whole process: a lasting key, a name, the part that they play."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from lossdoctor.record.window import Call

_NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "LocalResponseNorm")


class Keys:
    """Give each tensor a number that stays its own for the process, although `id()` is used again.

    Example:
        >>> keys, weight = Keys(), torch.zeros(2)
        >>> keys.of(weight) == keys.of(weight)
        True
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._next = 0

    def of(self, tensor: torch.Tensor) -> int:
        """Return the key of a tensor; a new one where it was not seen before."""
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        self._next += 1
        self._known[id(tensor)] = (weakref.ref(tensor), self._next)
        return self._next


class Root:
    """Remember a module that the script calls directly: its trainable parameters by identity, with names.

    Args:
        module: the module; held weakly.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> sorted(Root(layer).names.values())
        ['bias', 'weight']
    """

    __slots__ = ("__weakref__", "call", "elements", "names", "ref", "roles", "trainable", "trained_in_eval_mode", "trained_in_train_mode")

    def __init__(self, module: nn.Module) -> None:
        self.ref = weakref.ref(module)
        self.call = Call(self)
        self.names: dict[int, str] = {}
        self.roles: dict[int, str] = {}
        self.trained_in_train_mode = self.trained_in_eval_mode = False
        self.refresh()

    def is_copy_of(self, other: Root) -> bool:
        """Tell whether this is another instance of the same model, as an average or a reloaded checkpoint is."""
        mine, its = self.ref(), other.ref()
        return type(mine) is type(its) and mine is not None and set(self.names.values()) == set(other.names.values())

    def refresh(self) -> None:
        """Read the module's parameters again: some may have been added, frozen or thawed."""
        module = self.ref()
        self.elements, self.trainable = 0, False
        if module is None:
            return
        self.names, self.roles = {}, {}
        for prefix, part in module.named_modules():
            for name, parameter in part.named_parameters(recurse=False):
                self.names.setdefault(id(parameter), f"{prefix}.{name}" if prefix else name)
                self.roles.setdefault(id(parameter), _role(part, name))
                self.trainable = self.trainable or parameter.requires_grad
                self.elements += 0 if _shapeless(parameter) else parameter.numel()


def _shapeless(parameter: torch.Tensor) -> bool:
    return isinstance(parameter, UninitializedTensorMixin)


def _role(module: nn.Module, name: str) -> str:
    kind = type(module).__name__
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return "embedding"
    if any(norm in kind for norm in _NORMS):
        return "norm"
    return "bias" if "bias" in name else "weight"


class Roots:
    """Find the `Root` of a called module quickly.

    Example:
        >>> roots, layer = Roots(), nn.Linear(2, 1)
        >>> roots.of(layer) is roots.of(layer)
        True
    """

    def __init__(self) -> None:
        self.known: dict[int, Root] = {}

    def of(self, module: nn.Module) -> Root:
        """Return the root of a module; made at the first call."""
        root = self.known.get(id(module))
        if root is None or root.ref() is not module:
            root = self.known[id(module)] = Root(module)
        return root

    def refresh(self) -> None:
        """Read all modules again, and forget those that are gone."""
        for key in [key for key, root in self.known.items() if root.ref() is None]:
            del self.known[key]
        for root in self.known.values():
            root.refresh()


def describe(parameters: Iterable[tuple[torch.Tensor, str]], roots: Iterable[Root], keys: Keys) -> Iterator[dict[str, Any]]:
    """Describe parameters as a `track` line does.

    Args:
        parameters: each with the name that it has where no model knows it.
        roots: models called so far, the likeliest first.
        keys: the process-wide keys.
    """
    roots = list(roots)
    several = len({id(root) for root in roots}) > 1
    taken: set[str] = set()
    for parameter, fallback in parameters:
        root = next((root for root in roots if id(parameter) in root.names), None)
        name = fallback
        if root is not None:
            name = root.names[id(parameter)]
            if several and name in taken:
                name = f"{type(root.ref()).__name__}{roots.index(root)}.{name}"
        taken.add(name)
        yield {
            "key": keys.of(parameter),
            "name": name,
            "shape": [] if _shapeless(parameter) else list(parameter.shape),
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "requires_grad": parameter.requires_grad,
            "role": root.roles[id(parameter)] if root is not None else "weight" if parameter.dim() > 1 else "bias",
        }
