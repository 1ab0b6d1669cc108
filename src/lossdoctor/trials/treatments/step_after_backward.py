"""A step on the gradients of every backward, where the loop takes none or clears them before."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from lossdoctor.trials.hooks import Hooks, held


def apply(hooks: Hooks, idle: bool) -> None:
    """Let optimisers step.

    Args:
        idle: whether the loop never steps: then each optimiser steps after every backward. Otherwise gradients that were cleared
            between backward and step are put back for the step.
    """
    if idle:
        _step(hooks)
    else:
        _put_back(hooks)


def _step(hooks: Hooks) -> None:
    known: list[weakref.ref[Any]] = []

    def make(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            known.append(weakref.ref(self))

        return __init__

    def after() -> None:
        for optimizer in filter(None, (each() for each in known)):
            if any(parameter.grad is not None for parameter in held(optimizer)):
                hooks.note("step_after_backward")
                optimizer.step()

    hooks.wrap(torch.optim.Optimizer, "__init__", make)
    hooks.around_backward(after=after)


def _put_back(hooks: Hooks) -> None:
    kept = WeakTensorKeyDictionary()
    seen: list[weakref.ref[Any]] = []

    def after_backward() -> None:
        for optimizer in filter(None, (each() for each in seen)):
            for parameter in held(optimizer):
                if parameter.grad is not None:
                    kept[parameter] = parameter.grad.detach().clone()

    def before_step(optimizer: Any) -> None:
        if all(each() is not optimizer for each in seen):
            seen.append(weakref.ref(optimizer))
        parameters = held(optimizer)
        if any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in parameters):
            return
        for parameter in parameters:
            if parameter in kept:
                hooks.note("step_after_backward")
                parameter.grad = kept.pop(parameter)  # type: ignore[no-untyped-call]

    def after_step(optimizer: Any) -> None:
        for parameter in held(optimizer):
            kept.pop(parameter, None)  # type: ignore[no-untyped-call]

    hooks.around_backward(after=after_backward)
    hooks.before_step(before_step)
    hooks.after_step(after_step)
