"""Read numbers from tensors without asking a device for anything: what lies on one is read later, many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

NAN = float("nan")
_PLAIN = (Tensor, torch.nn.Parameter)


class Later:
    """Stand for the scaled sum of numbers that still lie on a device.

    Args:
        parts: 0-d tensors.
        factor: what their sum is multiplied by.
    """

    __slots__ = ("factor", "parts")

    def __init__(self, parts: Sequence[Tensor], factor: float = 1.0) -> None:
        self.parts = parts
        self.factor = factor


Value = float | Later


def value_of(tensor: object) -> Value:
    """Return the value of a loss: a number where it lies on the CPU, else one that is read later; NaN where there is none.

    A tensor of several elements gives their mean (a loss call that does not reduce).

    Example:
        >>> value_of(torch.tensor([1.0, 3.0]))
        2.0
    """
    if type(tensor) not in _PLAIN:
        return _of_subclass(tensor)
    if tensor.is_cpu:  # type: ignore[attr-defined]
        if tensor.numel() == 1:  # type: ignore[attr-defined]
            return float(tensor.item())  # type: ignore[attr-defined]
        return float(tensor.detach().mean().item()) if tensor.numel() else NAN  # type: ignore[attr-defined]
    return _on_device(tensor)  # type: ignore[arg-type]


def _of_subclass(tensor: object) -> Value:
    if not isinstance(tensor, Tensor) or type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return NAN  # fake, functional or distributed: no number to read here
    return value_of(tensor.detach().as_subclass(Tensor))


def _on_device(tensor: Tensor) -> Value:
    if tensor.is_meta or not tensor.numel():
        return NAN
    # A copy: the script may change the loss in place before it is read.
    with torch.no_grad():
        return Later((tensor.detach().float().mean(),))


def backward_value(tensors: Any, args: Sequence[Any], kwargs: Mapping[str, Any], scaled: tuple[Any, Any] | None) -> Value:
    """Return the value that a backward was called on, before any gradient scaler.

    Args:
        tensors, args, kwargs: as `torch.autograd.backward` was called.
        scaled: reference to what a gradient scaler returned last, and the loss that it multiplied.
    """
    if not isinstance(tensors, Tensor):
        return total([value_of(tensor) for tensor in tensors if isinstance(tensor, Tensor)])
    if scaled is not None and scaled[0]() is tensors:
        return value_of(scaled[1])
    weights = args[0] if args else kwargs.get("grad_tensors")
    if tensors.numel() > 1 and isinstance(weights, Tensor):
        return value_of((tensors.detach() * weights.detach()).sum())
    return value_of(tensors)


def mean(values: Sequence[Value]) -> Value:
    """Return the mean of values; NaN where there are none."""
    return total(values, 1.0 / len(values)) if values else NAN


def total(values: Sequence[Value], factor: float = 1.0) -> Value:
    """Return the sum of values, multiplied by a factor."""
    numbers = 0.0
    parts: list[Tensor] = []
    for value in values:
        if isinstance(value, float):
            numbers += value
        else:
            parts.extend(part * value.factor for part in value.parts)
    if not parts:
        return numbers * factor
    return Later((*parts, torch.tensor(numbers)), factor) if numbers else Later(parts, factor)


def numbers(values: Sequence[Value]) -> list[float]:
    """Read all values, one transfer for each device."""
    waiting = [value for value in values if not isinstance(value, float)]
    if not waiting:
        return list(values)  # type: ignore[arg-type]
    parts = [part for value in waiting for part in value.parts]
    read = _read(parts)
    return [value if isinstance(value, float) else value.factor * sum(read[id(part)] for part in value.parts) for value in values]


def _read(parts: Sequence[Tensor]) -> dict[int, float]:
    by_device: dict[torch.device, list[Tensor]] = {}
    for part in parts:
        by_device.setdefault(part.device, []).append(part)
    found: dict[int, float] = {}
    for tensors in by_device.values():
        stacked = torch.stack([tensor.float() for tensor in tensors]).tolist()
        found.update((id(tensor), number) for tensor, number in zip(tensors, stacked, strict=True))
    return found
