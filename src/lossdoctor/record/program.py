"""What happens between a model's forward and the backward call, recorded so that it can be done again.

A `Program` is a list of instructions: calls of modules and of torch functions, in order. It covers whatever a script does
to reach its loss with torch's own functions (known losses, losses written by hand, slices, several forwards); what leaves
torch on the way makes the replayed value differ, which the replay finds out by comparing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Ref:
    """Stand for a tensor that an earlier instruction made, by its number."""

    number: int


@dataclass(frozen=True)
class Constant:
    """Stand for a tensor that came from outside (a target, a mask, class weights), by its number."""

    number: int


@dataclass
class Instruction:
    """Hold one call: of a module (by number, in order of first call) or of a torch function."""

    call: Callable[..., Any] | int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: list[int]


@dataclass
class Program:
    """Hold the way from a batch to its loss.

    Args:
        constants: tensors from outside, detached copies on the CPU, by number; a module's inputs are among them.
        result: number of the tensor that backward was called on.
    """

    instructions: list[Instruction] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)
    result: int | None = None

    def run(self, modules: Sequence[Callable[..., Any]], constants: Sequence[Tensor] | None = None, resize: Callable[[int], int] | None = None) -> Any:
        """Do it again and return the loss.

        Args:
            modules: what to call in place of the recorded modules, by number.
            constants: in place of the recorded ones.
            resize: maps whole numbers among the arguments (a size that the script computed from the batch).
        """
        given = self.constants if constants is None else constants
        made: dict[int, Any] = {}

        def value(item: Any) -> Any:
            if isinstance(item, Ref):
                return made[item.number]
            if isinstance(item, Constant):
                return given[item.number]
            if resize is not None and type(item) is int:
                return resize(item)
            return item

        for instruction in self.instructions:
            call = modules[instruction.call] if isinstance(instruction.call, int) else instruction.call
            result = call(*replace(instruction.args, value), **replace(instruction.kwargs, value))
            made.update(zip(instruction.results, tensors(result), strict=False))
        return made[self.result] if self.result is not None else None


def tensors(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """Yield the tensors within nested tuples, lists, mappings and plain objects, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item, depth - 1)
    elif depth and isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors(getattr(value, name), depth - 1)


def replace(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a copy of nested tuples, lists and mappings with every leaf mapped."""
    if isinstance(value, torch.Size):
        return torch.Size(leaf(item) for item in value)
    if isinstance(value, tuple):
        items = [replace(item, leaf) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [replace(item, leaf) for item in value]
    if isinstance(value, dict):
        return {name: replace(item, leaf) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(replace(part, leaf) for part in (value.start, value.stop, value.step)))
    return leaf(value)


class Tracer:
    """Record the program of one step.

    Args:
        limit_bytes: bound on the copies of constants; beyond it the trace is given up.
        most: bound on the number of instructions.
    """

    def __init__(self, limit_bytes: int, most: int = 500) -> None:
        self.program = Program()
        self.given_up = False
        self.modules: list[torch.nn.Module] = []
        self._limit = limit_bytes
        self._most = most
        self._numbers: dict[int, int] = {}  # id of a tensor that an instruction made; kept alive in _alive
        self._constants: dict[int, tuple[int, int]] = {}  # id of a tensor from outside to its number and version
        self._alive: list[Tensor] = []
        self._mode: _Mode | None = None
        self._pending: tuple[int, tuple[Any, ...], Mapping[str, Any]] | None = None

    def module_began(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note that a model is called; functions within it are part of the call."""
        self.pause()
        if not any(module is known for known in self.modules):
            self.modules.append(module)
        number = next(index for index, known in enumerate(self.modules) if known is module)
        self._pending = (number, self._take(args), self._take(dict(kwargs)))

    def module_ended(self, result: Any) -> None:
        """Note what the model returned, and watch what is done with it."""
        if self._pending is None or self.given_up:
            return
        self._add(*self._pending, result)
        self._pending = None
        self._mode = _Mode(self)
        self._mode.__enter__()

    def pause(self) -> None:
        """Stop watching functions."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)

    def finish(self, loss: Tensor) -> Program | None:
        """End at the backward call and return the program; None where it was given up or does not reach the loss."""
        self.pause()
        self.program.result = self._numbers.get(id(loss))
        self._alive.clear()
        return None if self.given_up or self.program.result is None else self.program

    def function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a torch function and record it where it makes tensors."""
        name = getattr(function, "__name__", "")
        if self.given_up or name in _READS:
            return function(*args, **kwargs)
        noted = (self._take(args), self._take(dict(kwargs))) if self._concerns(args, kwargs) else None
        result = function(*args, **kwargs)
        if noted is not None:
            self._add(function, *noted, result)
        return result

    def _concerns(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        return any(True for _ in tensors((args, dict(kwargs))))

    def _add(self, call: Callable[..., Any] | int, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        made = list(tensors(result))
        if not made:
            return
        numbers = []
        for tensor in made:
            number = len(self._alive)
            self._numbers[id(tensor)] = number
            self._alive.append(tensor)
            numbers.append(number)
        self.program.instructions.append(Instruction(call, args, kwargs, numbers))
        if len(self.program.instructions) > self._most:
            self.give_up()

    def give_up(self) -> None:
        """Keep nothing."""
        self.given_up = True
        self.program = Program()
        self._alive.clear()

    def _take(self, value: Any) -> Any:
        return replace(value, self._leaf)

    def _leaf(self, item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        if id(item) in self._numbers:
            return Ref(self._numbers[id(item)])
        known = self._constants.get(id(item))
        if known is not None and known[1] == item._version:
            return Constant(known[0])
        if item.requires_grad:
            self.give_up()  # a parameter used outside its model: a replay on a copy of the model could not move it
            return item
        self._limit -= item.numel() * item.element_size()
        if self._limit < 0:
            self.give_up()
            return item
        number = len(self.program.constants)
        self.program.constants.append(item.detach().to("cpu", copy=True))
        self._constants[id(item)] = (number, item._version)
        self._alive.append(item)
        self._numbers_shift(item)
        return Constant(number)

    def _numbers_shift(self, item: Tensor) -> None:
        """Keep the numbering dense: a constant kept alive takes a number that no instruction uses."""


_READS = frozenset(
    {"__get__", "size", "dim", "numel", "item", "tolist", "__len__", "__bool__", "__float__", "__int__", "__index__", "__format__", "__repr__", "is_floating_point", "stride", "element_size", "nelement", "backward", "ndimension", "__hash__", "get_device", "requires_grad_"}
)


class _Mode(TorchFunctionMode):
    """Send torch functions through a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tracer.function(func, args, kwargs or {})
