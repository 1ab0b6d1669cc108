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

_RANDOM = ("rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "sample", "gumbel", "rrelu")
Watch = Callable[[str, Sequence[Any], Mapping[str, Any], Any], None]


@dataclass(frozen=True)
class Ref:
    """Stand for a tensor that an earlier instruction made, by its number."""

    number: int


@dataclass(frozen=True)
class Constant:
    """Stand for a tensor that came from outside (a target, a mask, class weights), by its number."""

    number: int


@dataclass(frozen=True)
class Weight:
    """Stand for a parameter of a called module (a penalty written by hand), by the module's number and its name."""

    module: int
    name: str


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

    def trim(self) -> None:
        """Leave out what does not lead to the loss: what a script works out besides, and what probes do.

        Calls of models stay, and what works in place or draws random numbers: what comes after depends on them.
        """
        needed = {self.result}
        kept = []
        for instruction in reversed(self.instructions):
            if needed & set(instruction.results) or _acts(instruction):
                kept.append(instruction)
                needed |= _refs((instruction.args, dict(instruction.kwargs)))
        self.instructions = kept[::-1]

    def run(
        self,
        modules: Sequence[torch.nn.Module],
        constants: Sequence[Tensor] | None = None,
        resize: Callable[[int], int] | None = None,
        watch: Watch | None = None,
    ) -> Any:
        """Do it again and return the loss.

        Args:
            modules: in place of the recorded modules, by number.
            constants: in place of the recorded ones.
            resize: maps whole numbers among the arguments (a size that the script computed from the batch).
            watch: told each function's name, arguments and result.
        """
        # Copies: a function that works in place would change them for the next run.
        given = [tensor.clone() for tensor in (self.constants if constants is None else constants)]
        made: dict[int, Any] = {}

        def value(item: Any) -> Any:
            if isinstance(item, Ref):
                return made[item.number]
            if isinstance(item, Constant):
                return given[item.number]
            if isinstance(item, Weight):
                return modules[item.module].get_parameter(item.name)
            if resize is not None and type(item) is int:
                return resize(item)
            return item

        for instruction in self.instructions:
            call = modules[instruction.call] if isinstance(instruction.call, int) else instruction.call
            args, kwargs = replace(instruction.args, value), replace(dict(instruction.kwargs), value)
            result = call(*args, **kwargs)
            if watch is not None and not isinstance(instruction.call, int):
                watch(getattr(instruction.call, "__name__", ""), args, kwargs, result)
            made.update(zip(instruction.results, tensors(result), strict=False))
        return made[self.result] if self.result is not None else None


def _acts(instruction: Instruction) -> bool:
    """Tell whether a call changes more than what it returns."""
    name = getattr(instruction.call, "__name__", "")
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or name == "__setitem__"
    return isinstance(instruction.call, int) or in_place or any(word in name for word in _RANDOM)


def _refs(value: Any) -> set[int | None]:
    """Return the numbers of the tensors that arguments stand for."""
    found: set[int | None] = set()

    def leaf(item: Any) -> Any:
        if isinstance(item, Ref):
            found.add(item.number)
        return item

    replace(value, leaf)
    return found


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
        self.bytes = 0
        self._limit = limit_bytes
        self._most = most
        self._made: dict[int, int] = {}  # id of a tensor that an instruction made, to its number
        self._constants: dict[int, tuple[int, int]] = {}  # id of a tensor from outside, to its number and version
        self._alive: list[Tensor] = []  # so that no id is used twice
        self._mode: _Mode | None = None
        self._pending: tuple[int, Any, Any] | None = None
        self._next = 0

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
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Stop watching functions."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def finish(self, loss: Tensor) -> Program | None:
        """End at the backward call and return the program; None where it was given up or does not reach the loss."""
        self.pause()
        self.program.result = self._made.get(id(loss))
        self._alive.clear()
        if self.given_up or self.program.result is None:
            return None
        self.program.trim()
        return self.program

    def function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a torch function and record it where it makes tensors."""
        if self.given_up or not any(self._moves(tensor) for tensor in tensors((args, kwargs))):
            return function(*args, **kwargs)  # what is made of outside tensors alone (a target looked up) is one itself
        in_place = getattr(function, "__name__", "").endswith("_")
        before = (self._take(args), self._take(dict(kwargs))) if in_place else None
        result = function(*args, **kwargs)
        if any(True for _ in tensors(result)):
            self._add(function, *(before or (self._take(args), self._take(dict(kwargs)))), result)
        return result

    def _moves(self, tensor: Tensor) -> bool:
        return id(tensor) in self._made or tensor.requires_grad

    def give_up(self) -> None:
        """Keep nothing."""
        self.given_up = True
        self.program = Program()
        self._alive.clear()

    def _add(self, call: Callable[..., Any] | int, args: Any, kwargs: Any, result: Any) -> None:
        numbers = []
        for tensor in tensors(result):
            number = self._next
            self._next += 1
            self._made[id(tensor)] = number
            self._alive.append(tensor)
            numbers.append(number)
        self.program.instructions.append(Instruction(call, args, kwargs, numbers))
        if len(self.program.instructions) > self._most:
            self.give_up()

    def _take(self, value: Any) -> Any:
        return replace(value, self._leaf)

    def _leaf(self, item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        if id(item) in self._made:
            return Ref(self._made[id(item)])
        known = self._constants.get(id(item))
        if known is not None and known[1] == item._version:
            return Constant(known[0])
        if item.requires_grad:
            weight = self._weight(item)
            if weight is not None:
                return weight
        size = item.numel() * item.element_size()
        self.bytes += size
        if item.requires_grad or self.bytes > self._limit:
            self.give_up()  # a parameter used outside its model (a replay could not move it), or too large
            return item
        number = len(self.program.constants)
        self.program.constants.append(item.detach().to("cpu", copy=True))
        self._constants[id(item)] = (number, item._version)
        self._alive.append(item)
        return Constant(number)

    def _weight(self, item: Tensor) -> Weight | None:
        named = ((number, name, parameter) for number, module in enumerate(self.modules) for name, parameter in module.named_parameters())
        return next((Weight(number, name) for number, name, parameter in named if parameter is item), None)


class _Mode(TorchFunctionMode):
    """Send torch functions through a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tracer.function(func, args, kwargs or {})
