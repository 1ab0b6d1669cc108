"""Is there anything non-linear between a model's layers? The middle of two inputs must not give the middle of what they give.

What enters the last layer is compared, with dropout off and batch norm on fixed statistics. Token ids are mixed behind their embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.respond import settle
from lossdoctor.record.capture import Batch, inputs
from lossdoctor.record.program import Program

WEIGHING = (nn.Linear, nn.modules.conv._ConvNd)
_EMBEDDING = (nn.Embedding, nn.EmbeddingBag)


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far what enters the last layer is from a straight line in the inputs.

    Returns:
        `layers` (linear and convolution layers that were called), `bend` (distance of the middle's value from the middle of both values,
        in spreads of them), `bend_pooled` (the same with every maximum pooling replaced by a mean), `widths` (outputs of each layer but
        the last), `copies` (whether the targets are the inputs: a linear autoencoder is meant).
    """
    batch = next((each for each in replay.batches if each.rows > 1), None)
    if batch is None:
        raise ReplayRefused("there is no batch of two rows")
    models = replay.start()
    for model in models:
        settle(model)
    called = _called(replay, models, batch)
    facts: dict[str, Any] = {"layers": len(called), "widths": [int(layer.weight.shape[0]) for layer in called[:-1]]}
    if len(called) < 2:
        return facts | {"bend": None, "bend_pooled": None, "copies": False}
    bend = _bend(replay, models, batch, called[-1])
    with _means_for_maxima():
        pooled = _bend(replay, models, batch, called[-1])
    return facts | {"bend": bend, "bend_pooled": pooled, "copies": _copies(batch)}


def _first_call(replay: Replay, models: list[nn.Module], batch: Batch, constants: list[Tensor]) -> None:
    first = batch.program.instructions[0]
    device = next((parameter.device for model in models for parameter in model.parameters()), torch.device("cpu"))
    with torch.no_grad():
        torch.manual_seed(0)
        Program([first], [], None).run(models, [each.to(device) for each in constants])


def _called(replay: Replay, models: list[nn.Module], batch: Batch) -> list[Any]:
    """Return the layers with weights in the order of their first call."""
    order: list[Any] = []

    def note(module: nn.Module, args: Any, result: Any) -> None:
        if not any(module is known for known in order):
            order.append(module)

    with _hooked([(part, note) for model in models for part in model.modules() if isinstance(part, WEIGHING)]):
        _first_call(replay, models, batch, replay.constants(batch))
    return order


def _bend(replay: Replay, models: list[nn.Module], batch: Batch, last: nn.Module) -> float | None:
    """Return the distance of f((a + b) / 2) from (f(a) + f(b)) / 2, b is the batch in reverse; None where inputs cannot be mixed."""
    constants = replay.constants(batch)
    mine = {id(tensor) for tensor in inputs(batch) if tensor.dim() and len(tensor) == batch.rows}
    floating = [each for each in constants if id(each) in mine and each.is_floating_point()]
    whole = [each for each in constants if id(each) in mine and not each.is_floating_point()]
    if whole and floating:
        return None  # ids beside numbers: which of them to mix is not clear
    one = _enters(replay, models, batch, last, constants)
    other = _enters(replay, models, batch, last, [each.flip(0) if id(each) in mine else each for each in constants])
    if floating:
        middle = _enters(
            replay, models, batch, last, [(each + each.flip(0)) / 2 if any(each is own for own in floating) else each for each in constants]
        )
    else:
        with _mixed_embeddings(models):
            middle = _enters(replay, models, batch, last, constants)
    if one is None or other is None or middle is None or one.shape != middle.shape:
        return None
    spread = float((one - other).square().mean().sqrt())
    return float((middle - (one + other) / 2).square().mean().sqrt()) / spread if spread > 0 else None


def _enters(replay: Replay, models: list[nn.Module], batch: Batch, last: nn.Module, constants: list[Tensor]) -> Tensor | None:
    found: list[Tensor] = []

    def note(module: nn.Module, args: Any, result: Any) -> None:
        if args and isinstance(args[0], Tensor):
            found.append(args[0].detach().double())

    with _hooked([(last, note)]):
        _first_call(replay, models, batch, constants)
    return found[-1] if found else None


@contextmanager
def _mixed_embeddings(models: list[nn.Module]) -> Iterator[None]:
    """Let every embedding give the middle of a row and of the row at the other end of the batch."""

    def mix(module: nn.Module, args: Any, result: Tensor) -> Tensor:
        return (result + result.flip(0)) / 2

    with _hooked([(part, mix) for model in models for part in model.modules() if isinstance(part, _EMBEDDING)]):
        yield


@contextmanager
def _hooked(pairs: list[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    handles = [part.register_forward_hook(hook) for part, hook in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _means_for_maxima() -> Iterator[None]:
    """Let maximum pooling take means: what is then straight had nothing else that bends."""
    names = ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
    before = {name: getattr(nn.functional, name) for name in names}

    def mean(name: str) -> Callable[..., Any]:
        function = getattr(nn.functional, name.replace("max", "avg"))

        def pooled(input: Tensor, size: Any, stride: Any = None, padding: Any = 0, *args: Any, ceil_mode: bool = False, **rest: Any) -> Any:
            return function(input, size) if "adaptive" in name else function(input, size, stride, padding, ceil_mode)

        return pooled

    for name in names:
        setattr(nn.functional, name, mean(name))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(nn.functional, name, function)


def _copies(batch: Batch) -> bool:
    """Tell whether what the outputs are compared with is the input itself."""
    given = [tensor for tensor in inputs(batch) if tensor.dim() and tensor.is_floating_point()]
    size = {tensor.numel() for tensor in given}
    mine = {id(tensor) for tensor in given}
    rest = [each for each in batch.program.constants if id(each) not in mine and each.is_floating_point() and each.dim()]
    if not any(each.shape[0] == batch.rows for each in batch.program.constants if id(each) not in mine and each.dim()):
        return True  # no targets beside the inputs
    return any(each.numel() in size and any(torch.equal(each.flatten(), own.flatten()) for own in given) for each in rest)
