"""Where a model's outputs meet their targets: in a known loss call, or where a loss written by hand compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.examples import rows_of
from lossdoctor.experiments.replay import Replay, ReplayRefused
from lossdoctor.record.capture import Batch, counts_rows, inputs, row_constants
from lossdoctor.record.program import tensors

LOSSES = ("_loss", "_logits", "_entropy")


@dataclass
class Met:
    """Hold outputs and targets as they meet.

    Args:
        kind: name of the loss function; empty where it is written by hand.
        output: with its graph.
        target: of the same number of rows.
        calls: how many known loss calls the step has.
        others: how many other tensors from outside go by rows: weights, masks, returns.
        loss: with its graph.
        ignored: the class number that does not count.
    """

    kind: str
    output: Tensor
    target: Tensor
    calls: int
    others: int
    loss: Tensor
    ignored: int = -100


def meeting(replay: Replay, models: list[nn.Module], batch: Batch) -> Met:
    """Run a step and return what met in it.

    Raises:
        ReplayRefused: no output and target were found.
    """
    calls: list[tuple[str, Any, Any]] = []
    ignored: list[int] = []
    outputs: list[Tensor] = []

    def watch(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        if name == "kl_div" or name.endswith(LOSSES):
            given = args[0] if args else kwargs.get("input")
            wanted = args[1] if len(args) > 1 else kwargs.get("target")
            if isinstance(given, Tensor) and isinstance(wanted, Tensor):
                calls.append((name, given, wanted))
                ignored.append(int(kwargs.get("ignore_index", args[4] if len(args) > 4 and isinstance(args[4], int) else -100)))

    handles = [model.register_forward_hook(lambda module, args, result: outputs.extend(tensors(result))) for model in models]
    try:
        torch.manual_seed(0)
        value = batch.program.run(models, replay.constants(batch), watch=watch)
    finally:
        for handle in handles:
            handle.remove()
    constants = [batch.program.constants[number] for number in row_constants(batch.program, batch.rows)]
    others = max(0, _distinct([each for each in constants if not counts_rows(each)]) - len(inputs(batch)) - 1)
    if calls:
        return Met(*calls[-1], calls=len(calls), others=others, loss=value.sum(), ignored=ignored[-1])
    return _by_hand(batch, outputs, others, value.sum())


def _distinct(tensors: list[Tensor]) -> int:
    """Count tensors by rows; one that is another, or one less another, is no further one: targets of yes and no come as both."""
    kept: list[Tensor] = []
    for tensor in tensors:
        flat = tensor.flatten().double()
        if not any(flat.shape == other.shape and (torch.equal(flat, other) or torch.equal(flat, 1 - other)) for other in kept):
            kept.append(flat)
    return len(kept)


def _by_hand(batch: Batch, outputs: list[Tensor], others: int, loss: Tensor) -> Met:
    found = rows_of(batch)
    target = None if found is None else found[1]
    output = next((each for each in outputs if target is not None and each.is_floating_point() and fits(each, target)), None)
    if output is None or target is None:
        raise ReplayRefused("outputs and targets do not meet row by row")
    return Met("", output, target, 0, others, loss)


def fits(output: Tensor, target: Tensor) -> bool:
    """Tell whether an output has one number, or one score for each class, for every target.

    Example:
        >>> fits(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])), fits(torch.zeros(4, 1), torch.zeros(4))
        (True, True)
    """
    return output.numel() == target.numel() or _classes(output, target)


def _classes(output: Tensor, target: Tensor) -> bool:
    if target.is_floating_point() or output.dim() < 2 or not target.numel():
        return False
    rest = (*output.shape[:1], *output.shape[2:])
    return output.numel() // output.shape[1] == target.numel() and (target.shape == rest or target.dim() == 1 or target.shape[1:] == (1,))


def pull(met: Met) -> float | None:
    """Return the cosine between where the loss pulls the outputs and where the targets are: 1 for a sound loss, -1 for a flipped one.

    The way to a class is the difference of a one at its place and the probabilities.
    """
    (gradient,) = torch.autograd.grad(met.loss, met.output, allow_unused=True, retain_graph=True)
    if gradient is None:
        return None
    downhill, given, wanted = -gradient.detach().double().cpu(), met.output.detach().double().cpu(), met.target.detach().cpu()
    if given.numel() != wanted.numel() and _classes(met.output, met.target):
        downhill, scores = (each.movedim(1, -1).reshape(-1, given.shape[1]) for each in (downhill, given))
        labels = wanted.reshape(-1).long()
        kept = (labels >= 0) & (labels < scores.shape[1])
        way = nn.functional.one_hot(labels[kept], scores.shape[1]).double() - scores[kept].softmax(1)
        return _cosine(downhill[kept], way)
    if given.numel() != wanted.numel():
        return None
    target = wanted.double().reshape(given.shape)
    cosines = [_cosine(downhill, target - given)]
    if bool(((target == 0) | (target == 1)).all()):  # of yes and no the outputs may be logits
        cosines.append(_cosine(downhill, target - given.sigmoid()))
    return max((each for each in cosines if each is not None), key=abs, default=None)


def _cosine(one: Tensor, other: Tensor) -> float | None:
    size = float(one.norm() * other.norm())
    return float((one * other).sum()) / size if 0 < size < float("inf") else None
