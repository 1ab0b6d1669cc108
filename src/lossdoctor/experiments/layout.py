"""Do layers stand where they can work? What no output looks at, filters that see only padding, dropout in front of batch norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, without_dropout
from lossdoctor.experiments.respond import settle

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd)
_ROWS = 32
_DROPOUT = (nn.modules.dropout._DropoutNd,)
_BATCHES = 20  # for the statistics of batch norm, with dropout and without


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return which layers stand in a place that hurts.

    Returns:
        `unseen`: list of `name`, `kind`, `shape` of a convolution or pooling layer's input and `share` of its places that no output of the
        model depends on; `idle`: list of `name`, `taps` of a convolution's filter and `share` of them that meet nothing but padding;
        `idle_weights` (share of the model's weights that they are); `own` and `alike` (loss in evaluation mode of the model as trained,
        with the statistics of batch norm taken with dropout and without; None where there are not both); `before_norm` (names of layers
        whose bias a norm takes off again: that costs nothing but memory).
    """
    models = replay.start()
    for model in models:
        settle(model)
    _spread(models)
    entered, handles = _watch(models)
    batch = replay.batches[0]
    rows = torch.arange(min(_ROWS, batch.rows))
    try:
        with without_dropout(models):
            replay.loss(models, batch, rows, change=lambda values: values.detach().clone().requires_grad_()).backward()  # type: ignore[no-untyped-call]
    finally:
        for handle in handles:
            handle.remove()
    idle = [found for name, part, _ in entered if isinstance(part, _CONVOLUTIONS) and (found := _idle(name, part))]
    weights = sum(parameter.numel() for model in models for parameter in model.parameters())
    facts: dict[str, Any] = {"unseen": [found for each in entered if (found := _unseen(*each))], "idle": idle}
    facts["idle_weights"] = sum(each.pop("weights") for each in idle) / max(1, weights)
    return facts | {"before_norm": _before_norm(replay), **_with_dropout(replay, deadline)}


def _spread(models: list[nn.Module]) -> None:
    """Give every weight random values: a start of zeros would pass nothing back."""
    torch.manual_seed(0)
    with torch.no_grad():
        for model in models:
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) / max(1, parameter[0].numel() if parameter.dim() else 1) ** 0.5)


def _watch(models: list[nn.Module]) -> tuple[list[tuple[str, nn.Module, Tensor]], list[Any]]:
    """Keep what enters convolutions and pooling layers at their first call, with its gradient."""
    entered: list[tuple[str, nn.Module, Tensor]] = []
    names = {id(part): name for model in models for name, part in model.named_modules() if isinstance(part, (*_CONVOLUTIONS, *_POOLS))}

    def note(layer: nn.Module, args: Any) -> None:
        known = any(layer is each for _, each, _ in entered)
        if not known and args and isinstance(args[0], Tensor) and args[0].requires_grad:
            args[0].retain_grad()
            entered.append((names[id(layer)], layer, args[0]))

    return entered, [
        part.register_forward_pre_hook(note) for model in models for part in model.modules() if isinstance(part, (*_CONVOLUTIONS, *_POOLS))
    ]


def _unseen(name: str, layer: nn.Module, given: Tensor) -> dict[str, Any] | None:
    """Return the share of the places of a layer's input through which nothing comes back from the loss."""
    if given.grad is None or not bool(given.grad.any()) or given.dim() < 3:
        return None
    seen = given.grad.ne(0).any(0).any(0)  # over rows and channels
    share = 1.0 - float(seen.double().mean())
    return {"name": name, "kind": type(layer).__name__, "shape": list(given.shape), "share": share} if share > 0 else None


def _idle(name: str, layer: Any) -> dict[str, Any] | None:
    """Return the share of a filter's taps that meet nothing but padding; None where all meet something."""
    slope = layer.weight.grad
    if slope is None or not bool(slope.any()):
        return None
    idle = ~slope.flatten(0, 1).ne(0).any(0)
    share = float(idle.double().mean())
    return {"name": name, "taps": list(idle.shape), "share": share, "weights": share * layer.weight.numel()} if share > 0 else None


def _before_norm(replay: Replay) -> list[str]:
    """Return the layers with a bias whose outputs enter a batch norm as they are."""
    models = replay.start()
    made: dict[int, str] = {}
    kept: list[Tensor] = []  # so that no other tensor gets the same number
    found: list[str] = []
    names = {id(part): name for model in models for name, part in model.named_modules()}

    def after(layer: Any, args: Any, result: Any) -> None:
        if getattr(layer, "bias", None) is not None and isinstance(result, Tensor):
            made[id(result)] = names[id(layer)]
            kept.append(result)

    def before(layer: Any, args: Any) -> None:
        if args and id(args[0]) in made:
            found.append(made[id(args[0])])

    parts = [part for model in models for part in model.modules()]
    norms = [part.register_forward_pre_hook(before) for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    handles = norms + [part.register_forward_hook(after) for part in parts if isinstance(part, (nn.Linear, *_CONVOLUTIONS))]
    try:
        with torch.no_grad():
            replay.loss(models, replay.batches[0])
    finally:
        for handle in handles:
            handle.remove()
    return sorted(set(found))


def _with_dropout(replay: Replay, deadline: Deadline) -> dict[str, Any]:
    """Return the loss in evaluation mode with statistics that were taken with dropout, and without."""
    parts = [part for model in replay.start() for part in model.modules()]
    norms = any(isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats for part in parts)
    drops = any(isinstance(part, _DROPOUT) and part.p > 0 for part in parts)
    if not (norms and drops) or deadline.over:
        return {"own": None, "alike": None}
    own = replay.now()
    with torch.no_grad():
        _gather(replay, own)
        found = {"own": _level(replay, own)}
        with without_dropout(own):
            _gather(replay, own)
        return found | {"alike": _level(replay, own)}


def _gather(replay: Replay, models: list[nn.Module]) -> None:
    """Take the statistics of batch norm anew, as plain means over some batches."""
    for model in models:
        model.train()
        for part in model.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
                part.reset_running_stats()
                part.momentum = None
    torch.manual_seed(0)
    for batch in replay.batches[:_BATCHES]:
        replay.loss(models, batch)


def _level(replay: Replay, models: list[nn.Module]) -> float:
    for model in models:
        model.eval()
    losses = [float(replay.loss(models, batch)) for batch in replay.batches[:_BATCHES]]
    return sum(losses) / len(losses)
