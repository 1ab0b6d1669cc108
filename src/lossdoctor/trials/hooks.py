"""What a treatment takes hold of in the script's process: torch's public hooks, and functions that are wrapped and put back.

A treatment comes after the recorder's seams and lies around them, so that the record shows what was treated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Hooks:
    """Hold what the treatments of a process have taken hold of.

    Args:
        act: is told the name of a treatment when it changes something for the first time.
        finish: ends the process.
        unseen: makes a block within which nothing is recorded.

    Example:
        >>> hooks = Hooks()
        >>> before = torch.softmax
        >>> hooks.wrap(torch, "softmax", lambda original: lambda *args, **kwargs: original(*args, **kwargs))
        >>> hooks.undo()
        >>> torch.softmax is before
        True
    """

    def __init__(
        self,
        act: Callable[[str], object] = lambda name: None,
        finish: Callable[[], object] = lambda: None,
        unseen: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.finish = finish
        self.unseen = unseen
        self.acted: set[str] = set()
        self._act = act
        self._undo: list[Callable[[], object]] = []

    def note(self, name: str) -> None:
        """Note that a treatment found something to change; without it a trial says nothing of the fault."""
        if name not in self.acted:
            self.acted.add(name)
            self._act(name)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put a wrapper in the place of a function; nothing where this torch has no such function."""
        if not hasattr(owner, name):
            return
        original = getattr(owner, name)
        wrapper = make(original)
        functools.update_wrapper(wrapper, original)
        self.put(owner, name, wrapper)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Put a value in the place of an attribute."""
        inherited, original = name not in vars(owner), getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(functools.partial(delattr, owner, name) if inherited else functools.partial(setattr, owner, name, original))

    def before_step(self, function: Callable[[Any], object]) -> None:
        """Call a function with an optimiser before each of its steps."""
        self._undo.append(register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: _nothing(function(optimizer))).remove)

    def after_step(self, function: Callable[[Any], object]) -> None:
        """Call a function with an optimiser after each of its steps."""
        self._undo.append(register_optimizer_step_post_hook(lambda optimizer, args, kwargs: _nothing(function(optimizer))).remove)

    def around_forward(self, around: Callable[[Callable[..., Any], nn.Module, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        """Let a function make every outermost call of a module that has parameters: it is given the call, the module and the arguments."""
        depth = [0]

        def make(original: Any) -> Any:
            def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
                if depth[0] or is_compiling() or next(self.parameters(), None) is None:
                    return original(self, *args, **kwargs)
                depth[0] = 1
                try:
                    return around(functools.partial(original, self), self, args, kwargs)
                finally:
                    depth[0] = 0

            return __call__

        self.wrap(nn.Module, "__call__", make)

    def around_backward(self, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> None:
        """Call functions before and after every outermost backward."""
        depth = [0]

        def make(original: Any) -> Any:
            def backward(*args: Any, **kwargs: Any) -> None:
                if depth[0] or is_compiling():
                    return original(*args, **kwargs)  # type: ignore[no-any-return]
                depth[0] = 1
                try:
                    before()
                    original(*args, **kwargs)
                    after()
                finally:
                    depth[0] = 0

            return backward

        self.wrap(torch.autograd, "backward", make)

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._undo:
            self._undo.pop()()


def held(optimizer: Any) -> list[Tensor]:
    """Return the parameters that an optimiser holds."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def sequence_number() -> int:
    """Return a number above that of every node of a graph that this thread has made, and below that of every later one."""
    with torch.enable_grad():
        node: Any = torch.zeros((), requires_grad=True).clone().grad_fn
    number: int = node._sequence_nr()
    return number


def _nothing(result: object) -> None:
    """Return None: what a hook returns would replace the arguments of the step."""


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[bool]:
    """Put a module and its parts into a mode within the block; yield whether that changed any."""
    before = [(part, part.training) for part in module.modules()]
    changed = [part for part, flag in before if flag != training]
    for part in changed:
        part.training = training
    try:
        yield bool(changed)
    finally:
        for part, flag in before:
            part.training = flag
