"""What one step holds: weights, gradients, the optimiser's state, and activations, measured by what autograd saves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.training import optimizer_for

MOST_LAYERS = 50


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of one training step.

    Args:
        parameters: `optimizer` and `settings`, as recorded.

    Returns:
        `rows`; `weights`, `gradients`, `optimizer` (its state after one step; None where it cannot be rebuilt), `activations` (saved for
        backward, weights left out); `layers`: list of `name`, `kind`, `weights`, `activations`, the largest first; `available`
        (memory that is free now) and `largest_batch` (rows that fit it, as activations grow with them).
    """
    import psutil

    batch, models = replay.batches[0], replay.start()
    weights = sum(_bytes(each) for model in models for each in model.parameters())
    saved, by_layer = _saved(replay, models)
    replay.loss(models, batch).backward()  # type: ignore[no-untyped-call]
    gradients = sum(_bytes(each.grad) for model in models for each in model.parameters() if each.grad is not None)
    state = _state(models, parameters)
    free = int(psutil.virtual_memory().available)
    fixed = weights + gradients + (state or 0)
    facts: dict[str, Any] = {"rows": batch.rows, "weights": weights, "gradients": gradients, "optimizer": state, "activations": saved}
    facts |= {"layers": by_layer, "available": free}
    return facts | {"largest_batch": int(max(0, free - fixed) / max(1.0, saved / batch.rows))}


def _saved(replay: Replay, models: list[nn.Module]) -> tuple[int, list[dict[str, Any]]]:
    """Return what autograd keeps for backward, in all and by the innermost layer that was at work."""
    own = {each.data_ptr() for model in models for each in model.parameters()}
    kept: dict[tuple[int, int], int] = {}
    at_work: list[str] = []
    by_name: dict[str, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        key = (tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        if key not in kept and tensor.data_ptr() not in own:
            kept[key] = key[1]
            name = at_work[-1] if at_work else "loss"
            by_name[name] = by_name.get(name, 0) + key[1]
        return tensor

    named = [(name, part) for model in models for name, part in model.named_modules() if name]
    handles = []
    for name, part in named:
        handles.append(part.register_forward_pre_hook(lambda module, args, name=name: at_work.append(name)))
        handles.append(part.register_forward_hook(lambda module, args, result: at_work.pop() and None))
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = replay.loss(models, replay.batches[0])
    finally:
        for handle in handles:
            handle.remove()
    del loss
    kinds = {name: type(part).__name__ for name, part in named}
    sizes = {name: sum(_bytes(each) for each in part.parameters(recurse=False)) for name, part in named}
    layers = [
        {"name": name, "kind": kinds.get(name, ""), "weights": sizes.get(name, 0), "activations": by_name.get(name, 0)}
        for name in {**sizes, **by_name}
        if sizes.get(name) or by_name.get(name)
    ]
    layers.sort(key=lambda layer: -(layer["weights"] + layer["activations"]))
    return sum(kept.values()), layers[:MOST_LAYERS]


def _state(models: list[nn.Module], parameters: dict[str, Any]) -> int | None:
    try:
        optimizer = optimizer_for(models, parameters, 1.0)
    except ReplayRefused:
        return None
    optimizer.step()
    return sum(_bytes(value) for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))


def _bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()
