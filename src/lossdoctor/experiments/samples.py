"""A few examples with their targets, as a report shows them: images made small, tables and tokens as their first values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.examples import rows_of
from lossdoctor.experiments.replay import Replay

SAMPLES = 8
SIDE = 24  # pixels of an image's longer side: enough to recognise it, and small beside the rest of a report
_VALUES, _TOKENS = 10, 24
_CHANNELS = (1, 3)


def samples(replay: Replay) -> list[dict[str, Any]]:
    """Return the first captured examples.

    Returns:
        List of `target` (text) and either `image` (`height`, `width`, `channels`, `pixels` as hex digits of bytes, row by row) or `row`
        (text of the first values or token ids); empty where inputs and targets cannot be told apart.
    """
    found = next((pair for batch in replay.batches if (pair := rows_of(batch)) is not None), None)
    if found is None:
        return []
    given, targets = found
    return [{"target": _text(targets[row].reshape(-1)), **_example(given[0][row])} for row in range(min(SAMPLES, len(targets)))]


def _example(example: Tensor) -> dict[str, Any]:
    picture = _picture(example)
    return {"image": picture} if picture is not None else {"row": _text(example.reshape(-1))}


def _picture(example: Tensor) -> dict[str, Any] | None:
    """Return an image of one or three channels, scaled from its own lowest value to its highest; None for what is no image."""
    if example.dim() != 3 or not example.is_floating_point() or not bool(torch.isfinite(example).all()):
        return None
    image = example if example.shape[0] in _CHANNELS else example.permute(2, 0, 1)
    channels, height, width = image.shape
    if channels not in _CHANNELS or min(height, width) < 4:
        return None
    scale = min(1.0, SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    small = torch.nn.functional.adaptive_avg_pool2d(image.detach().float(), size)
    low, high = float(small.min()), float(small.max())
    pixels = ((small - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8).permute(1, 2, 0)
    return {"height": size[0], "width": size[1], "channels": channels, "pixels": bytes(pixels.flatten().tolist()).hex()}


def _text(values: Tensor) -> str:
    whole = not values.is_floating_point()
    most = _TOKENS if whole else _VALUES
    shown = [str(int(value)) if whole else f"{float(value):.3g}" for value in values[:most]]
    return ", ".join([*shown, *(["..."] if len(values) > most else [])])
