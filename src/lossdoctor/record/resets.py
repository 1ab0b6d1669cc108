"""Tell whether gradients were reset between a step and the next backward calls."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

_EVERY_ON_DEVICE = 16  # looks at values that lie on a device make it wait: only now and then


class Holder(Protocol):
    """Hold parameters."""

    def alive(self) -> list[Tensor]:
        """Return them; none where one is gone."""
        ...


class Resets:
    """Tell whether the gradients of some parameters were reset.

    One parameter stands for all: the smallest with a gradient that is not zero. Its gradient was reset when it is None, another
    tensor, or was written to by someone else than backward, or is all zero (`grad.data.zero_()` leaves no other mark).

    Example:
        >>> import torch
        >>> weight = torch.ones(1, requires_grad=True)
        >>> (2 * weight).sum().backward()
        >>> resets = Resets()
        >>> from types import SimpleNamespace
        >>> resets.keep(SimpleNamespace(alive=lambda: [weight]))
        >>> resets.look()
        False
        >>> weight.grad = None
        >>> resets.look()
        True
    """

    __slots__ = ("_looks", "_version", "asked", "gradient", "seen", "sentinel", "to_none")

    def __init__(self) -> None:
        self.seen = True
        self.asked = False
        self.to_none = False  # at the last look there was no gradient at all
        self.sentinel: weakref.ref[Tensor] | None = None
        self.gradient: weakref.ref[Tensor] | None = None
        self._version = 0
        self._looks = 0

    def keep(self, holder: Holder) -> None:
        """Remember the gradient as it is now, right after a step.

        Args:
            holder: asked for its parameters where the one that stands for all has no gradient.
        """
        sentinel = self.sentinel() if self.sentinel is not None else None
        gradient = sentinel.grad if sentinel is not None else None
        if gradient is None:
            sentinel = _smallest(holder.alive())
            self.sentinel = weakref.ref(sentinel) if sentinel is not None else None
            gradient = sentinel.grad if sentinel is not None else None
        self.seen = self.asked = False
        if gradient is None:
            self.gradient = None
            return
        self.gradient = weakref.ref(gradient)
        self._version = gradient._version

    def look(self) -> bool:
        """Look, at the entry of a backward call, whether a reset has happened since; return the answer."""
        self.asked = True
        sentinel, kept = self.sentinel() if self.sentinel is not None else None, self.gradient
        gradient = sentinel.grad if sentinel is not None else None
        self.to_none = gradient is None and sentinel is not None
        if gradient is None or kept is None or kept() is not gradient or gradient._version != self._version:
            self.seen = True
            return True
        self._looks += 1
        if gradient.is_cpu or self._looks % _EVERY_ON_DEVICE == 1:
            self.seen = not bool(gradient.any())
        return self.seen

    def holds_values(self) -> bool:
        """Tell whether the remembered gradient is not zero everywhere."""
        gradient = self.gradient() if self.gradient is not None else None
        return gradient is not None and bool(gradient.any())

    def follow(self) -> None:
        """Remember the gradient again after a backward call of the script."""
        sentinel = self.sentinel() if self.sentinel is not None else None
        gradient = sentinel.grad if sentinel is not None else None
        self.gradient = weakref.ref(gradient) if gradient is not None else None
        self._version = gradient._version if gradient is not None else 0


def _smallest(parameters: Sequence[Tensor]) -> Tensor | None:
    found = [parameter for parameter in parameters if parameter.grad is not None and not parameter.grad.is_sparse]
    found.sort(key=lambda parameter: parameter.numel())
    for parameter in found[:8]:
        if parameter.grad is not None and parameter.grad.any():
            return parameter
    return found[0] if found else None


def has_gradient(parameters: Sequence[Tensor]) -> bool:
    """Tell whether any gradient is there and not zero everywhere; the last layer's is looked at first."""
    for parameter in reversed(parameters):
        gradient = parameter.grad
        if gradient is not None and bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any()):
            return True
    return False
