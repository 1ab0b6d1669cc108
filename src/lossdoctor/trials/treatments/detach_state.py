"""State that is carried from step to step, without the graph of the steps before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks, sequence_number

_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)


def apply(hooks: Hooks) -> None:
    """Detach what a model or a recurrent layer is called with where it was made before the last backward."""
    done = [0]

    def cut(value: Any) -> Any:
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return type(value)(map(cut, value))
        if isinstance(value, Tensor) and value.grad_fn is not None and value.grad_fn._sequence_nr() < done[0]:
            hooks.note("detach_state")
            return value.detach()
        return value

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(*map(cut, args), **{name: cut(value) for name, value in kwargs.items()})

    def make(original: Any) -> Any:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, *map(cut, args), **{name: cut(value) for name, value in kwargs.items()})

        return forward

    def after() -> None:
        done[0] = sequence_number()

    hooks.around_forward(around)
    hooks.around_backward(after=after)
    for kind in _RECURRENT:
        hooks.wrap(kind, "forward", make)
