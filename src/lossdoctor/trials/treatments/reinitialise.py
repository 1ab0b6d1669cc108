"""A sound start: weights by fan-in (He), embeddings small, biases zero, normalisation as its class begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from lossdoctor.trials.hooks import Hooks

_WEIGHTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
_EMBEDDING_STD = 0.02  # as in GPT-2 (Radford et al. 2019, code)
_DONE = "_lossdoctor_started"
_OFF = 3.0  # a weight of no known layer is rescaled where it is so many times off its fan-in (starting value)


def apply(hooks: Hooks, seed: int = 0) -> None:
    """Initialise every trained model anew before its first call; random numbers of the script stay as they are.

    Args:
        seed: of the new weights.
    """

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _DONE not in vars(module):  # a copy has it too: an experiment's must begin as its model did
            vars(module)[_DONE] = True
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(seed)
                _start(module)
            hooks.note("reinitialise")
        return call(*args, **kwargs)

    hooks.around_forward(around)


def _start(model: nn.Module) -> None:
    known: set[int] = set()
    parts = list(model.modules())
    last = next((part for part in reversed(parts) if isinstance(part, nn.Linear)), None)
    for part in parts:
        if any(isinstance(each, UninitializedTensorMixin) for each in part.parameters(recurse=False)):
            continue
        if isinstance(part, _WEIGHTS):
            # The last layer feeds no rectifier.
            nn.init.kaiming_normal_(part.weight, nonlinearity="linear" if part is last else "relu")
            if isinstance(part.bias, Tensor):
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.MultiheadAttention):
            part._reset_parameters()
        elif callable(reset := getattr(part, "reset_parameters", None)) and not isinstance(part, nn.Embedding):
            reset()
        else:
            continue
        known |= {id(each) for each in part.parameters(recurse=False)}
    for part in parts:  # after the rest: an embedding may share its weight with the last layer
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=_EMBEDDING_STD)
            known.add(id(part.weight))
    for parameter in model.parameters():
        if id(parameter) not in known:
            _rescale(parameter)


def _rescale(parameter: Tensor) -> None:
    """Bring a weight of no known layer to the size that its fan-in asks for, where it is far off."""
    if parameter.dim() < 2 or isinstance(parameter, UninitializedTensorMixin):
        return
    wanted = 1 / math.sqrt(max(1, parameter[0].numel()))
    size = float(parameter.std()) if parameter.numel() > 1 else 0.0
    if size > 0 and not wanted / _OFF < size < wanted * _OFF:
        parameter.mul_(wanted / size)
