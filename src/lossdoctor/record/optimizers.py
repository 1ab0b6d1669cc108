"""Know the optimisers of a process: which exist, what they hold, which step, whether they are asked to reset gradients."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from lossdoctor.record.tracks import Track


class Known:
    """Remember one optimiser, also when it is gone."""

    __slots__ = ("held", "name", "ref", "reset", "steps_inside", "track")

    def __init__(self, optimizer: Any) -> None:
        self.ref = weakref.ref(optimizer)
        self.name = type(optimizer).__name__
        self.held = {id(parameter) for parameter in parameters_of(optimizer)}
        self.reset = False
        self.steps_inside = False  # within backward, one optimiser per parameter
        self.track: Track | None = None


class Optimizers:
    """Remember the optimisers of a process.

    Example:
        >>> import torch
        >>> optimizers = Optimizers()
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        >>> optimizers.of(optimizer) is optimizers.of(optimizer)
        True
    """

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._gone: list[Known] = []

    def of(self, optimizer: Any) -> Known:
        """Return what is known of an optimiser."""
        known = self._known.get(id(optimizer))
        if known is not None and known.ref() is optimizer:
            return known
        if known is not None:
            self._gone = [*self._gone[-63:], known]  # its `id()` is used again
        known = self._known[id(optimizer)] = Known(optimizer)
        return known

    def idle(self, identities: set[int]) -> list[dict[str, Any]]:
        """Describe the optimisers that never stepped, and how many of these parameters each holds."""
        found = [known for known in (*self._gone, *self._known.values()) if known.track is None and not known.steps_inside]
        return [
            {"name": known.name, "zero_grad": known.reset, "held": len(known.held), "shared": len(known.held & identities)}
            for known in found
        ]

    def all_reset(self) -> bool:
        """Tell whether the own `zero_grad` of every optimiser that is alive was called."""
        return all(known.reset or known.ref() is None for known in self._known.values())

    def held(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return these parameters and those of every optimiser that is alive."""
        found = {id(parameter): parameter for parameter in parameters}
        for known in self._known.values():
            optimizer = known.ref()
            if optimizer is not None:
                found.update((id(parameter), parameter) for parameter in parameters_of(optimizer))
        return list(found.values())


def parameters_of(optimizer: Any) -> list[Tensor]:
    """Return the parameters that an optimiser holds, group after group."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
