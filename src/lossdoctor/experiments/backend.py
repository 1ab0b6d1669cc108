"""Does this machine compute what it should? Each layer once more in float64 on the processor, and twice in the same way.

How far a sound operation may be off follows from the layer itself: its inputs and weights are moved by as much as rounding moves them. A
second device is not needed; what only shows now and then, or in a layer that torch does not know, is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, untouched, without_dropout
from lossdoctor.record.program import replace, tensors

MOST_LAYERS = 60
_ENTRIES = 1 << 17  # of a layer's largest input that are used: rows beyond them ask the same again
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_REPEATS = 2


@dataclass
class _Call:
    """Hold the first call of a layer: its name, a copy of it and what it was given."""

    name: str
    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far each layer is off, forwards and backwards.

    Returns:
        `layers`: list of `name`, `kind`, `dtype`, `error` (of outputs and gradients beside float64 on the processor, over their norm),
        `sound` (what rounding of inputs and weights does to them, alike) and `apart` (largest difference of repetitions, over the norm);
        `left` (how many layers were not asked); `step` (difference of the gradient of one whole step done twice, over its norm);
        `device`; `second` (whether the reference was computed on another device).
    """
    calls = _calls(replay)
    if not calls:
        raise ReplayRefused("the model calls no layers of torch")
    layers = []
    for call in calls:
        if deadline.over:
            break
        with untouched():
            found = _layer(call)
        if found is not None:
            layers.append(found)
    device = next((each.device for model in replay.start() for each in model.parameters()), torch.device("cpu"))
    facts = {"layers": layers, "left": len(calls) - len(layers), "device": device.type, "second": device.type != "cpu"}
    return facts | {"step": None if deadline.over else _step(replay)}


def _calls(replay: Replay) -> list[_Call]:
    """Return the first calls of torch's own innermost layers in the first step, in their order."""
    models = replay.start()
    found: list[_Call] = []
    seen: set[int] = set()

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if id(layer) not in seen and len(found) < MOST_LAYERS:
            seen.add(id(layer))
            kept = replace((args, kwargs), lambda item: item.detach().clone() if isinstance(item, Tensor) else item)
            found.append(_Call(names[id(layer)], layer, kept[0], kept[1]))

    parts = [(name, part) for model in models for name, part in model.named_modules() if _known(part)]
    names = {id(part): name for name, part in parts}
    handles = [part.register_forward_pre_hook(note, with_kwargs=True) for _, part in parts]
    try:
        batch = replay.batches[0]
        with torch.no_grad(), without_dropout(models):
            replay.loss(models, batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _known(part: nn.Module) -> bool:
    ours = type(part).__module__.startswith("torch.nn.modules") and not isinstance(part, (*_RANDOM, nn.modules.loss._Loss))
    return ours and (isinstance(part, (nn.RNNBase, nn.MultiheadAttention)) or not any(True for _ in part.children()))


def _layer(call: _Call) -> dict[str, Any] | None:
    """Measure one layer; None where it gives no numbers, overflows its precision, or does not run in float64."""
    args, kwargs = _shortened(call.args), call.kwargs
    dtype = next((each.dtype for each in (*tensors(args), *call.layer.parameters()) if each.is_floating_point()), None)
    if dtype is None or dtype == torch.float64:
        return None
    try:
        runs = [_answer(copy.deepcopy(call.layer), args, kwargs) for _ in range(_REPEATS)]
        exact = _answer(copy.deepcopy(call.layer).cpu().double(), *_moved(args, kwargs))
        nearby = _answer(_shaken(copy.deepcopy(call.layer).cpu().double(), dtype), *_moved(args, kwargs, dtype))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    if any(float(part.abs().max()) > torch.finfo(dtype).max / 2 or not torch.isfinite(part).all() for part in exact if part.numel()):
        return None
    told = {"name": call.name, "kind": type(call.layer).__name__, "dtype": str(dtype).removeprefix("torch.")}
    return told | {"error": _off(runs[0], exact, exact), "sound": _off(nearby, exact, exact), "apart": _off(runs[0], runs[1], exact)}


def _off(one: list[Tensor], other: list[Tensor], exact: list[Tensor]) -> float:
    """Return the largest difference of outputs or of gradients, over their norm."""
    sizes = [float(part.norm()) for part in exact]
    return max((float((a - b).norm()) / size for a, b, size in zip(one, other, sizes, strict=True) if size > 0), default=0.0)


def _shortened(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a layer with fewer rows, where it has one tensor with many."""
    given = [each for each in args if isinstance(each, Tensor)]
    if len(given) != 1 or given[0].dim() < 2 or given[0].numel() <= _ENTRIES:
        return args
    rows = max(2, _ENTRIES * len(given[0]) // given[0].numel())
    return tuple(each[:rows] if isinstance(each, Tensor) else each for each in args)


def _answer(layer: nn.Module, args: Any, kwargs: Any) -> list[Tensor]:
    """Return a layer's outputs and the gradients of a fixed sum of them by weights and inputs, in float64."""
    torch.manual_seed(0)
    given = replace((args, kwargs), _leaf)
    outputs = [each for each in tensors(layer(*given[0], **given[1])) if each.is_floating_point()]
    draw = torch.Generator().manual_seed(1)
    weighed = [
        (each * torch.randn(each.shape, generator=draw, dtype=torch.float64).to(each)).sum() for each in outputs if each.requires_grad
    ]
    wanted = [each for each in (*tensors(given), *layer.parameters()) if each.requires_grad]
    slopes = torch.autograd.grad(sum(weighed), wanted, allow_unused=True) if weighed and wanted else ()  # type: ignore[arg-type]
    return [each.detach().cpu().double() for each in (*outputs, *slopes) if each is not None]


def _leaf(item: Any) -> Any:
    if not isinstance(item, Tensor):
        return item
    return item.detach().clone().requires_grad_(item.is_floating_point())


def _moved(args: Any, kwargs: Any, dtype: torch.dtype | None = None) -> Any:
    """Return arguments in float64 on the processor, moved by rounding of a precision where one is given."""

    def move(item: Any) -> Any:
        if not isinstance(item, Tensor) or not item.is_floating_point():
            return item.cpu() if isinstance(item, Tensor) else item
        exact = item.detach().cpu().double()
        return exact if dtype is None else _rounded(exact, dtype)

    return replace((args, kwargs), move)


def _shaken(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(_rounded(parameter, dtype))
    return layer


def _rounded(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Move numbers by half of the last place of a precision, up or down at random."""
    signs: Callable[[Tensor], Tensor] = lambda like: torch.randint(0, 2, like.shape, generator=_draw()) * 2.0 - 1.0  # noqa: E731
    return exact * (1 + signs(exact).double() * torch.finfo(dtype).eps / 2)


def _draw() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def _step(replay: Replay) -> float | None:
    """Return how far the gradients of one step done twice are apart, over their norm; None where there is none."""
    one, other = (torch.cat(list(_gradients(replay))) for _ in range(2))
    size = float(one.norm())
    return float((one - other).norm()) / size if size > 0 and bool(torch.isfinite(one).all()) else None


def _gradients(replay: Replay) -> Iterator[Tensor]:
    models = replay.start()
    with untouched():
        torch.manual_seed(0)
        replay.loss(models, replay.batches[0]).backward()  # type: ignore[no-untyped-call]
    yield torch.zeros(1, dtype=torch.float64)
    for model in models:
        for parameter in model.parameters():
            if parameter.grad is not None:
                yield parameter.grad.detach().cpu().double().flatten()
