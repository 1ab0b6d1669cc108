"""Would a wider model do better on the same rows? It is trained as it is and with every inner layer widened, from fresh weights.

It confirms that a model is too small and never decides it: more units nearly always help a little.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, without_dropout
from lossdoctor.experiments.unseen import split, unseen_loss
from lossdoctor.record.capture import Batch

FACTOR = 8
STEPS = 300
RATES = (1e-2, 3e-3)  # Adam's; both models get both: two units need the first to get anywhere in so few steps, deep models the second
_EVERY = 30
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_CONVOLUTION_SETTINGS = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
_RECURRENT_SETTINGS = ("num_layers", "bias", "batch_first", "bidirectional")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the best loss on rows left out, for the model as it is and widened.

    Returns:
        `factor`, `own` and `wide` (best loss on the rows left out, of two rates), `own_trained` and `wide_trained` (last training losses),
        `rows`, `unseen_rows`, `steps`.

    Raises:
        ReplayRefused: the model cannot be widened layer by layer, or too little was captured.
    """
    models = replay.start()
    if len(models) != 1:
        raise ReplayRefused("the loss is made by several models")
    if not all(parameter.requires_grad for parameter in models[0].parameters()):
        raise ReplayRefused("a part of the model is frozen, and would be trained when it is widened")
    batch = replay.batches[0]
    parts = [split(each) for each in replay.batches]
    rows, left_out = (sum(len(part[side]) for part in parts) for side in (0, 1))
    if left_out < 40:
        raise ReplayRefused(f"only {left_out} rows can be left out")
    own, own_trained, best, trained, steps = math.inf, math.nan, math.inf, math.nan, 0
    for rate, until in zip(RATES, (deadline.half, deadline), strict=True):
        own_model, wide = replay.start(0)[0], widened(replay, batch)
        with without_dropout([own_model, wide]):
            narrow = _train(replay, own_model, parts, until.half, rate, STEPS)
            broad = _train(replay, wide, parts, until, rate, narrow[2])
        own, own_trained, steps = min((own, own_trained, steps), narrow)
        best, trained = min((best, trained), broad[:2])
    facts = {"factor": FACTOR, "own": own, "wide": best, "own_trained": own_trained, "wide_trained": trained}
    return facts | {"rows": rows, "unseen_rows": left_out, "steps": steps}


def widened(replay: Replay, batch: Batch) -> nn.Module:
    """Return the model with every inner width multiplied, freshly initialised.

    Raises:
        ReplayRefused: a layer is not known, the layers do not fit together any more, or the output changed its shape.
    """
    (model,) = replay.start()
    shape, order = _trace(replay, model, batch)
    torch.manual_seed(0)
    for place, layer in enumerate(order):
        first, last = place == 0, place == len(order) - 1
        _put(model, layer, _wider(layer, 1 if first else FACTOR, 1 if last else FACTOR))
    try:
        after, _ = _trace(replay, model, batch)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ReplayRefused("the layers do not fit together when they are widened") from error
    if after != shape:
        raise ReplayRefused("the output changes its shape when the layers are widened")
    return model


def _trace(replay: Replay, model: nn.Module, batch: Batch) -> tuple[list[torch.Size], list[nn.Module]]:
    """Run the model once; return the shapes that it gives, and its layers with weights in the order in which they ran."""
    shapes: list[torch.Size] = []
    order: list[nn.Module] = []

    def ran(layer: nn.Module, args: Any, result: Any) -> None:
        if layer not in order:
            order.append(layer)

    def returned(root: nn.Module, args: Any, result: Any) -> None:
        shapes.extend(tensor.shape for tensor in (result if isinstance(result, tuple) else (result,)) if isinstance(tensor, Tensor))

    layers = [part for part in model.modules() if next(part.parameters(recurse=False), None) is not None]
    handles = [layer.register_forward_hook(ran) for layer in layers] + [model.register_forward_hook(returned)]
    try:
        with torch.no_grad():
            replay.loss([model], batch)
    finally:
        for handle in handles:
            handle.remove()
    if len(order) != len(layers) or len(order) < 2:
        raise ReplayRefused("not every layer of the model runs by itself")
    return shapes, order


def _wider(layer: nn.Module, given: int, made: int) -> nn.Module:
    """Return a fresh layer with `given` times the inputs and `made` times the outputs."""
    if type(layer) is nn.Linear:
        return nn.Linear(layer.in_features * given, layer.out_features * made, layer.bias is not None)
    if type(layer) in _CONVOLUTIONS and layer.groups == 1:
        settings = {name: getattr(layer, name) for name in _CONVOLUTION_SETTINGS} | {"bias": layer.bias is not None}
        return type(layer)(layer.in_channels * given, layer.out_channels * made, **settings)  # type: ignore[operator]
    if type(layer) in _NORMS and made > 1:
        return type(layer)(layer.num_features * made, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)  # type: ignore[operator]
    if type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1 and made > 1:
        return nn.LayerNorm(layer.normalized_shape[0] * made, layer.eps)
    if type(layer) is nn.Embedding and given == 1:
        return nn.Embedding(layer.num_embeddings, layer.embedding_dim * made, layer.padding_idx)
    if type(layer) in (nn.GRU, nn.LSTM, nn.RNN) and not getattr(layer, "proj_size", 0) and made > 1:
        settings = {name: getattr(layer, name) for name in _RECURRENT_SETTINGS}
        return type(layer)(layer.input_size * given, layer.hidden_size * made, **settings)  # type: ignore[operator]
    raise ReplayRefused(f"a {type(layer).__name__} in this place cannot be widened")


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a layer in the place of another, wherever the model holds it."""
    new.train(old.training)
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if child is old:
                setattr(part, name, new)


def _train(
    replay: Replay, model: nn.Module, parts: list[tuple[Tensor, Tensor]], deadline: Deadline, rate: float, steps: int
) -> tuple[float, float, int]:
    """Train with Adam; return the best loss on the rows left out, the last training loss, and the steps taken."""
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=rate)
    usable = [number for number, (kept, _) in enumerate(parts) if len(kept)]
    best, trained, step = math.inf, math.nan, 0
    for step in range(1, steps + 1):
        number = usable[step % len(usable)]
        optimizer.zero_grad()
        loss = replay.loss([model], replay.batches[number], parts[number][0])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        trained = float(loss.detach())
        if step % _EVERY == 0 or deadline.over:
            best = min(best, unseen_loss(replay, [model], parts))
        if deadline.over or not math.isfinite(trained):
            break
    return best, trained, step
