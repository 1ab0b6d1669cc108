"""See where a model's outputs meet their targets in a validation pass: in `==`, in a subtraction.

A torch-function mode that is on only in passes without gradients, and outside module calls. It follows a model's outputs
through views, softmax, argmax and thresholds to the tensor of equal length that they are compared with.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

MOST_OPERATIONS = 5000  # of one pass; each costs some 2 us
_SAME = frozenset(
    [
        "view",
        "reshape",
        "flatten",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "t",
        "float",
        "double",
        "half",
        "bfloat16",
        "to",
        "type",
        "type_as",
        "cpu",
        "cuda",
        "detach",
        "clone",
        "contiguous",
        "__getitem__",
        "softmax",
        "log_softmax",
        "sigmoid",
        "exp",
        "cat",
        "concat",
        "stack",
        "mul",
        "__mul__",
        "__rmul__",
        "add",
        "__add__",
        "__radd__",
        "div",
        "__truediv__",
        "clamp",
        "relu",
        "long",
        "int",
        "bool",
        "byte",
        "expm1",
        "log",
        "view_as",
        "reshape_as",
        "index_select",
        "masked_select",
        "narrow",
        "select",
    ]
)
_DECIDE = frozenset(
    ["argmax", "gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__", "greater", "less", "round", "sign", "heaviside"]
)
_MEET = frozenset(["eq", "__eq__", "ne", "__ne__", "sub", "subtract", "__sub__", "__rsub__", "rsub"])
_MASK = frozenset(["__and__", "__rand__", "logical_and", "mul", "__mul__", "__rmul__", "bitwise_and"])
_UNCHANGED = frozenset(
    ["float", "double", "half", "to", "type", "cpu", "cuda", "detach", "clone", "contiguous", "long", "int", "view", "reshape", "flatten"]
)


class Met:
    """Sum up what outputs and targets showed where they met.

    Args:
        hits: equal rows and rows, each a number or a 0-d tensor.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts


class Pairing(TorchFunctionMode):
    """Follow outputs to their targets.

    Args:
        quiet: told to run what we compute ourselves, with the seams deaf.

    Example:
        >>> pairing = Pairing(lambda function: function())
        >>> output, target = torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])
        >>> pairing.follow(output, 0)
        >>> pairing.enter()
        True
        >>> _ = (output.argmax(1) == target).float().mean()
        >>> pairing.leave()
        >>> pairing.correct()
        (1.0, 2.0)
    """

    def __init__(self, quiet: Callable[[Callable[[], Any]], Any]) -> None:
        super().__init__()
        self._quiet = quiet
        self.active = False
        self.failed: Exception | None = None
        self.operations = 0
        self.clear()

    def clear(self) -> None:
        """Forget all outputs and what they met."""
        self._known: dict[int, tuple[weakref.ref[Tensor], str, Any]] = {}
        self._hits: dict[Any, Met] = {}
        self._plain: dict[Any, Met] = {}
        self._raw: dict[Any, weakref.ref[Tensor]] = {}
        self._targets: dict[Any, Tensor] = {}
        self._decisions: dict[Any, weakref.ref[Tensor]] = {}
        self._differences: dict[Any, Met] = {}
        self.softmax_over_rows = 0
        self.operations = 0

    def follow(self, output: Tensor, base: Any, kind: str = "output") -> None:
        """Remember a tensor that comes from a model's output."""
        if len(self._known) > 4096:
            self._known = {key: known for key, known in self._known.items() if known[0]() is not None}
        self._known[id(output)] = (weakref.ref(output), kind, base)
        if kind == "output":
            self._raw.setdefault(base, weakref.ref(output))

    def enter(self) -> bool:
        """Put the mode on the stack, unless somebody else's mode is there: its end would take ours away."""
        if self.active:
            return True
        if torch._C._len_torch_function_stack() or self.operations > MOST_OPERATIONS or self.failed is not None:
            return False
        torch._C._push_on_torch_function_stack(self)
        self.active = True
        return True

    def leave(self) -> None:
        """Take the mode off the stack, where it is on top."""
        if not self.active:
            return
        depth = torch._C._len_torch_function_stack()
        if depth and torch._C._get_function_stack_at(depth - 1) is self:
            torch._C._pop_torch_function_stack()
            self.active = False

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.failed is None and self.operations <= MOST_OPERATIONS:
            self.operations += 1
            try:
                self._see(getattr(func, "__name__", ""), args, kwargs or {}, result)
            except Exception as error:
                self.failed = error
        return result

    def _see(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        first = args[0] if args else kwargs.get("input")
        if isinstance(first, (list, tuple)) and first:  # cat, stack
            first = first[0]
        known = self._lookup(first)
        other = args[1] if len(args) > 1 else kwargs.get("other")
        if name in _MEET:
            reverse = known is None
            if reverse:
                first, other = other, first
                known = self._lookup(first)
            if known is not None and isinstance(first, Tensor) and isinstance(other, Tensor) and self._lookup(other) is None:
                self._meet(name, known, first, other, result)
            if known is not None and known[1] == "output" and isinstance(result, Tensor) and result.is_floating_point():
                self.follow(result, known[2])  # a difference of two logits, a shifted output
            return
        if known is None:
            if name in _MASK and (known := self._lookup(other)) is not None and known[1] == "hits":
                self._mask(known[2], first, result)
            return
        if name == "softmax" and _over_rows(first, kwargs.get("dim", other)):
            self.softmax_over_rows += 1
        self._pass_on(name, known, other, result)

    def _lookup(self, tensor: Any) -> tuple[weakref.ref[Tensor], str, Any] | None:
        known = self._known.get(id(tensor))
        return known if known is not None and known[0]() is tensor else None

    def _pass_on(self, name: str, known: tuple[Any, str, Any], other: Any, result: Any) -> None:
        _, kind, base = known
        if kind == "hits":
            self._pass_hits(name, base, other, result)
        elif name in ("max", "topk", "sort", "min") and isinstance(result, tuple):
            self.follow(result[0], base)
            self.follow(result[1], base, "decision")
            if name == "max":
                self._decide(base, result[1])
        elif name in _DECIDE:
            if isinstance(result, Tensor):
                self.follow(result, base, "decision")
                if name == "argmax":
                    self._decide(base, result)
        elif name in _SAME and isinstance(result, Tensor):
            self.follow(result, base, kind)

    def _pass_hits(self, name: str, base: Any, other: Any, result: Any) -> None:
        if not isinstance(result, Tensor):
            return
        if name == "__getitem__" or name in ("masked_select", "all"):
            if result.dim() or name == "__getitem__":
                self._hits[base] = self._count(result)
                self.follow(result, base, "hits")
        elif name in _MASK and isinstance(other, Tensor):
            self._mask(base, other, result)
        elif name in _UNCHANGED:
            self.follow(result, base, "hits")

    def _mask(self, base: Any, mask: Any, result: Any) -> None:
        if isinstance(mask, Tensor) and isinstance(result, Tensor) and mask.numel() == result.numel():
            self._hits[base] = Met((_total(result), _total(mask)))
            self.follow(result, base, "hits")

    def _meet(self, name: str, known: tuple[Any, str, Any], output: Tensor, target: Tensor, result: Any) -> None:
        _, kind, base = known
        if not isinstance(result, Tensor) or output.numel() != target.numel() or result.numel() != output.numel():
            return
        if name in ("eq", "__eq__", "ne", "__ne__"):
            if base not in self._hits and kind != "hits":
                self._hits[base] = self._count(result if name in ("eq", "__eq__") else ~result)
                self._targets[base] = target
                self._compare(base, output)
                if name in ("eq", "__eq__"):
                    self.follow(result, base, "hits")
        elif kind == "output" and output.is_floating_point() and target.is_floating_point() and base not in self._differences:
            self._differences[base] = self.compared(output, target)

    def _decide(self, base: Any, decision: Tensor) -> None:
        self._decisions.setdefault(base, weakref.ref(decision))
        self._compare(base, decision)

    def _compare(self, base: Any, decision: Tensor) -> None:
        """Count how often the script's decision is right, and the largest output of each row, where outputs are scores of classes."""
        raw, target = self._raw[base]() if base in self._raw else None, self._targets.get(base)
        if raw is None or target is None or base in self._plain or raw.dim() != 2 or raw.shape[1] < 2:
            return
        if target.is_floating_point() or not len(raw) == target.numel() == decision.numel():
            return
        wanted = target.detach().reshape(-1)
        first, second = self._quiet(lambda: ((raw.detach().argmax(1) == wanted).sum(), (decision.detach().reshape(-1) == wanted).sum()))
        self._plain[base] = Met((first, second, float(len(raw))))

    @property
    def targets(self) -> list[Tensor]:
        """The targets that outputs met, in the order of the forwards."""
        return list(self._targets.values())

    def plain(self) -> tuple[float, float, float] | None:
        """Return how many largest outputs met their targets, how many by the script's own decision, and of how many."""
        if not self._plain:
            return None
        first, second, rows = (sum(float(met.parts[place]) for met in self._plain.values()) for place in range(3))
        return first, second, rows

    def _count(self, hits: Tensor) -> Met:
        return Met((_total(hits), float(hits.numel())))

    def meet_in_loss(self, base: Any, output: Tensor, target: Tensor, correct: Tensor | None) -> None:
        """Take what a known loss call shows, where nothing else has compared these outputs."""
        self._targets.setdefault(base, target)
        decision = self._decisions[base]() if base in self._decisions else None
        if decision is not None:
            self._compare(base, decision)
        if correct is not None and base not in self._hits:
            self._hits[base] = self._count(correct)
        if correct is None and base not in self._differences and output.numel() == target.numel():
            self._differences[base] = self.compared(output.reshape(-1), target.reshape(-1))

    def compared(self, output: Tensor, target: Tensor) -> Met:
        """Return the squared differences of outputs and targets, and the targets' first two moments."""

        def sums() -> Met:
            wide = torch.float32 if output.device.type == "mps" else torch.float64
            wanted = target.detach().to(wide)
            difference = output.detach().to(wide) - wanted
            return Met((float(output.numel()), difference.square().sum(), wanted.sum(), wanted.square().sum()))

        return self._quiet(sums)  # type: ignore[no-any-return]

    def correct(self) -> tuple[float, float] | None:
        """Return how many outputs were equal to their targets, and of how many; None where none met."""
        if not self._hits:
            return None
        return sum(float(met.parts[0]) for met in self._hits.values()), sum(float(met.parts[1]) for met in self._hits.values())

    def r2(self) -> tuple[float, float] | None:
        """Return the share of the targets' variance that the outputs explain, and of how many; None where it does not apply."""
        if not self._differences:
            return None
        count, squares, first, second = (sum(float(met.parts[place]) for met in self._differences.values()) for place in range(4))
        spread = second - first * first / count if count else 0.0
        return (1.0 - squares / spread, count) if spread > 0 else None


def _over_rows(output: Any, axis: Any) -> bool:
    """Tell whether an axis is that of the rows, of outputs that have several rows and several columns."""
    return axis in (0, -2) and isinstance(output, Tensor) and output.dim() == 2 and min(output.shape) > 1


def _total(tensor: Tensor) -> Any:
    return tensor.detach().sum()
