"""A rectifier between layers that nothing else lies between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Pass what enters a layer through a rectifier, of every layer but the first that a call of the model reaches."""
    reached = [0]

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reached[0] = 0
        return call(*args, **kwargs)

    def make(original: Any) -> Any:
        def forward(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            reached[0] += 1
            if reached[0] > 1 and isinstance(input, Tensor):
                hooks.note("activate_between")
                input = input.relu()
            return original(self, input, *args, **kwargs)

        return forward

    hooks.around_forward(around)
    hooks.wrap(nn.Linear, "forward", make)
    for kind in _ConvNd.__subclasses__():
        if "forward" in vars(kind):
            hooks.wrap(kind, "forward", make)
