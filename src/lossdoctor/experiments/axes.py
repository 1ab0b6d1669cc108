"""Are the axes of images and series what the first layer takes them for? Neighbours along an axis that has an order are alike.

What enters the first convolution or recurrent layer is looked at, and read anew in the other order of its axes: a `view` where a
`permute` was meant leaves the values where they were, so that neighbours are found again only when it is undone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.record.program import Program

_LAYERS = (nn.modules.conv._ConvNd, nn.RNNBase)
_ROWS = 64
_LEAST = 4  # positions of an axis
MOST_CHANNELS = 4  # of an image, for the question whether they stand last


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how alike neighbours are along the axes that the first layer takes for ordered.

    Returns:
        `layer` (kind), `shape` (of what enters it), `order` (correlation of neighbours, the lower of height and width, the higher of a
        series' two axes), `undone` (the same after a view is undone), `last` (the same where the last axis holds the channels; None where
        it cannot), `channels` (that the layer takes).
    """
    layer, entered = _first(replay)
    values = torch.nan_to_num(entered[:_ROWS].double())
    facts: dict[str, Any] = {"layer": type(layer).__name__, "shape": list(entered.shape), "last": None}
    if isinstance(layer, nn.RNNBase) or values.dim() == 3:
        first, second = values.shape[1:]
        facts |= {"channels": second if isinstance(layer, nn.RNNBase) else first, "order": max(_along(values, 1), _along(values, 2))}
        undone = values.reshape(len(values), second, first)
        return facts | {"undone": max(_along(undone, 1), _along(undone, 2))}
    if values.dim() != 4:
        raise ReplayRefused("these are neither images nor series")
    channels, height, width = values.shape[1:]
    facts |= {"channels": channels, "order": _plane(values)}
    undone = values.reshape(len(values), height, width, channels).permute(0, 3, 1, 2)
    facts["undone"] = _plane(undone) if 1 < channels <= MOST_CHANNELS else facts["order"]
    if width <= MOST_CHANNELS < min(channels, height):
        facts["last"] = _plane(values.permute(0, 3, 1, 2))
    return facts


def _first(replay: Replay) -> tuple[nn.Module, Tensor]:
    """Return the first convolution or recurrent layer that is called, and what enters it."""
    batch = replay.batches[0]
    models = replay.start()
    found: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, args: Any) -> None:
        if not found and args and isinstance(args[0], Tensor) and args[0].dim() >= 3:
            found.append((module, args[0].detach().cpu()))

    handles = [part.register_forward_pre_hook(note) for model in models for part in model.modules() if isinstance(part, _LAYERS)]
    try:
        with torch.no_grad():
            Program([batch.program.instructions[0]], [], None).run(models, replay.constants(batch))
    finally:
        for handle in handles:
            handle.remove()
    if not found or found[0][1].shape[0] < 2 or (isinstance(found[0][0], nn.RNNBase) and not found[0][0].batch_first):
        raise ReplayRefused("no convolution or recurrent layer was called on examples")
    return found[0]


def _plane(values: Tensor) -> float:
    """Return the lower of the neighbours' correlations along height and width."""
    return min(_along(values, 2), _along(values, 3))


def _along(values: Tensor, axis: int) -> float:
    """Return the correlation of neighbours along an axis; what is the same in every example does not count."""
    size = values.shape[axis]
    if size < _LEAST:
        return 0.0
    apart = values - values.mean(0, keepdim=True)
    one, other = apart.narrow(axis, 0, size - 1).flatten(), apart.narrow(axis, 1, size - 1).flatten()
    product = float((one.square().sum() * other.square().sum()).sqrt())
    return float((one * other).sum()) / product if product > 0 else 0.0
