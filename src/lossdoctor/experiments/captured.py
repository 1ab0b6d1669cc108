"""Captures of a model, batches and a loss that are at hand: what the seams take of a script, without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from lossdoctor.core.errors import UsageError
from lossdoctor.record.capture import Capture, Captures

Loss = Callable[[Any, Any], Any]


def captured(model: nn.Module, batches: Iterable[Any], loss_fn: Loss) -> Captures:
    """Run batches forwards through a model in training mode and keep what a replay needs; nothing is trained.

    Args:
        batches: each a pair of inputs and target.
        loss_fn: takes outputs and target and returns one number.

    Raises:
        UsageError: a batch, the model or the loss is not what it should be.
    """
    capture = Capture()
    for number, batch in enumerate(batches, 1):
        forward(model, batch, loss_fn, number, capture)
    if not capture.held.batches:
        raise UsageError(capture.held.refused or "the loader gave no batch")
    return capture.held


def forward(model: nn.Module, batch: Any, loss_fn: Loss, number: int = 1, capture: Capture | None = None) -> Tensor:
    """Return the loss of a batch; what goes wrong is told with the number of the batch.

    Raises:
        UsageError: a batch, the model or the loss is not what it should be.
    """
    given, target = pair(batch, number)
    args, kwargs = (
        ((), dict(given)) if isinstance(given, Mapping) else (tuple(given), {}) if isinstance(given, (tuple, list)) else ((given,), {})
    )
    try:
        if capture is not None:
            capture.forward_began(True, model, args, kwargs)
        output = model(*args, **kwargs)
        if capture is not None:
            capture.forward_ended(output)
    except Exception as error:
        raise UsageError(f"the model fails on batch {number}: {type(error).__name__}: {error}") from error
    try:
        loss = loss_fn(output, target)
    except Exception as error:
        raise UsageError(f"loss_fn fails on batch {number}: {type(error).__name__}: {error}") from error
    _check(loss)
    if capture is not None:
        capture.backward_began(loss)
    return loss  # type: ignore[no-any-return]


def pair(batch: Any, number: int = 1) -> tuple[Any, Any]:
    """Split a batch into inputs and target.

    Raises:
        UsageError: where it is no pair.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    told = f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list, Mapping)) else f"a {type(batch).__name__}"
    raise UsageError(f"batch {number} is {told}; expected a pair of inputs and target")


def _check(loss: Any) -> None:
    if not isinstance(loss, Tensor):
        raise UsageError(f"loss_fn returned a {type(loss).__name__}; expected a tensor with one number")
    if loss.dim():
        raise UsageError(
            f"loss_fn returned a tensor of shape {tuple(loss.shape)}; expected one number: take its mean, or set reduction='mean'"
        )
    if not loss.requires_grad:
        raise UsageError("the loss is cut from the model: it carries no gradient (a detach, .item(), numpy or torch.no_grad() on the way)")


def first_batches(loader: Iterable[Any], most: int) -> Iterator[Any]:
    """Yield the first batches of a loader.

    Raises:
        UsageError: where it gives none.
    """
    number = 0
    for number, batch in enumerate(loader, 1):
        yield batch
        if number >= most:
            return
    if number == 0:
        raise UsageError("the loader gave no batch")


def made(make_model: Any) -> nn.Module:
    """Return a model of a function that makes one, or a copy of a model.

    Raises:
        UsageError: it is neither.
    """
    import copy

    if isinstance(make_model, nn.Module):
        return copy.deepcopy(make_model)
    if not callable(make_model):
        raise UsageError(f"make_model: expected a function that returns a model, got {type(make_model).__name__}")
    model = make_model()
    if not isinstance(model, nn.Module):
        raise UsageError(f"make_model returned a {type(model).__name__}; expected a torch.nn.Module")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("the model has no parameters that learn")
    return model
