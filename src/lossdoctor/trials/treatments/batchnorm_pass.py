"""Averages of batch normalisation from a pass over batches of training, before each validation."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree

from lossdoctor.core.fault import Treatment
from lossdoctor.trials.hooks import Hooks

USUAL = Treatment("batchnorm_pass", {}, moves="validation", direction="down", safety="changes-results")
BATCHES = 32  # of those last trained on; their mean is as sure as that of many hundred rows (starting value)


def apply(hooks: Hooks, batches: int = BATCHES) -> None:
    """Take the averages anew over the last batches of training, at the first call without gradients after a step.

    Args:
        batches: that are kept.
    """
    kept: weakref.WeakKeyDictionary[nn.Module, deque[Any]] = weakref.WeakKeyDictionary()
    fresh: set[int] = set()  # models whose averages belong to their weights

    def around(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.is_grad_enabled():
            if module.training:
                kept.setdefault(module, deque(maxlen=batches)).append(_pytree.tree_map(_detached, (args, kwargs)))
        elif module in kept and id(module) not in fresh:
            fresh.add(id(module))
            with hooks.unseen():
                if _renew(module, list(kept[module])):
                    hooks.note("batchnorm_pass")
        return call(*args, **kwargs)

    hooks.around_forward(around)
    hooks.after_step(lambda optimizer: fresh.clear())


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _renew(module: nn.Module, batches: list[Any]) -> bool:
    """Set the averages to those over batches; return whether there are any."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.running_mean is not None]
    before = [(part, part.training) for part in module.modules()]
    momenta = [norm.momentum for norm in norms]
    for part, _ in before:
        part.training = False
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum, norm.training = None, True  # None: the plain mean over all calls
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for args, kwargs in batches if norms else ():
                module.forward(*args, **kwargs)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for part, flag in before:
            part.training = flag
    return bool(norms)
