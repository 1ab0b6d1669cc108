"""Count what the operations of a step do: floating-point operations, bytes that they read and write, values that the script waits for.

A dispatch mode sees every operation of PyTorch, those of backward and of the optimiser as well. It is put on for one step in a
replay or a child, never in a watched run.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lossdoctor.record.places import user_place

# Operations at which the host waits until the device has got so far, because their result decides what comes next.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "is_nonzero")
# They make or rename a tensor and move no data.
_NO_DATA = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "detach", "_unsafe_view", "_reshape_alias", "alias")


@dataclass
class Census:
    """Hold what was counted.

    Args:
        kinds: by (name, flops, bytes) of one call: how many there were.
        flops_by_dtype: floating-point operations by the dtype of the first tensor, e.g. `float32`.
        waits: by (file, line) in the user's source: how often the host waited for a value of the device there.
        waited: for how many seconds.

    Example:
        >>> import torch
        >>> census = Census()
        >>> with Counting(census):
        ...     _ = torch.ones(2, 3) @ torch.ones(3, 4)
        >>> census.flops  # a multiplication and an addition for each of 2 * 3 * 4
        48
    """

    kinds: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    flops_by_dtype: Counter[str] = field(default_factory=Counter)
    waits: Counter[tuple[str, int]] = field(default_factory=Counter)
    waited: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def operations(self) -> int:
        """Operations that move data."""
        return sum(self.kinds.values())

    @property
    def flops(self) -> int:
        """Floating-point operations of matrix products and convolutions."""
        return sum(flops * count for (_, flops, _), count in self.kinds.items())

    @property
    def bytes(self) -> int:
        """Bytes that operations read and wrote, each operation by itself."""
        return sum(size * count for (_, _, size), count in self.kinds.items())

    def rows(self) -> list[tuple[int, int, int]]:
        """Return (count, flops, bytes) of each kind of operation; kinds without a matrix product that are alike in size are joined."""
        joined: Counter[tuple[int, int]] = Counter()
        for (_, flops, size), count in self.kinds.items():
            joined[flops, size] += count
        return [(count, flops, size) for (flops, size), count in joined.items()]


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count operations into a census while it is on.

    Args:
        census: to fill.
        place: finds the line of the user's source; None leaves waits uncounted.
        clock: seconds.
    """

    def __init__(
        self,
        census: Census,
        place: Callable[[], tuple[str, int] | None] | None = user_place,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.census = census
        self._place = place
        self._clock = clock

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        began = self._clock()
        result = func(*args, **(kwargs or {}))
        took = self._clock() - began
        name = func._overloadpacket.__name__
        if name in WAITS or _leaves_device(name, args, result):
            place = self._place() if self._place is not None else None
            if place is not None:
                self.census.waits[place] += 1
                self.census.waited[place] = self.census.waited.get(place, 0.0) + took
        if name in _NO_DATA or func.is_view:
            return result
        flops = _flops(func, name, args, kwargs or {}, result)
        self.census.kinds[name, flops, _bytes(args) + _bytes((kwargs or {}).values()) + _bytes((result,))] += 1
        if flops:
            self.census.flops_by_dtype[_dtype(args)] += flops
        return result


def _leaves_device(name: str, args: Sequence[Any], result: Any) -> bool:
    """Tell whether an operation copies from a device to the host, which waits for it."""
    source = args[1] if name == "copy_" and len(args) > 1 else args[0] if name == "_to_copy" and args else None
    return isinstance(source, Tensor) and not source.is_cpu and isinstance(result, Tensor) and result.is_cpu


def _flops(func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    counted = flop_registry.get(func._overloadpacket)
    try:
        if counted is not None:
            return int(counted(*args, **kwargs, out_val=result))
        own = _OWN.get(name)
        return int(own(args, result)) if own is not None else 0
    except (TypeError, ValueError, IndexError, AssertionError, AttributeError):
        return 0  # a form that the formula does not know


def _attention(products: int) -> Callable[[Sequence[Any], Any], int]:
    """Count scaled dot-product attention of the CPU, of which PyTorch's own table has no formula: so many products of queries and keys."""

    def count(args: Sequence[Any], result: Any) -> int:
        query, key = (args[0], args[1]) if products == 2 else (args[1], args[2])
        return int(2 * products * math.prod(query.shape) * key.shape[-2])

    return count


def _recurrent(args: Sequence[Any], result: Any) -> int:
    """Count one layer of oneDNN's recurrent networks: input (time, rows, features) times the weights of all gates."""
    inputs, weights = args[0], [each for each in args[1:5] if isinstance(each, Tensor) and each.dim() == 2]
    return int(2 * math.prod(inputs.shape[:-1]) * sum(weight.numel() for weight in weights))


_OWN: dict[str, Callable[[Sequence[Any], Any], int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention(2),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(5),
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": lambda args, result: 2 * _recurrent(args, result),
    "mv": lambda args, result: 2 * args[0].numel(),
    "dot": lambda args, result: 2 * args[0].numel(),
}


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bytes(values: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(values))


def _dtype(args: Any) -> str:
    first = next(_tensors(args), None)
    return "unknown" if first is None else str(first.dtype).removeprefix("torch.")
