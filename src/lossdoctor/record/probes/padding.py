"""The field `padding` of `batch.inputs`: the share of a batch of sequences that only fills it up to one length."""

from __future__ import annotations

import torch
from torch import Tensor

from lossdoctor.record.probes.tensors import host, local, shape_of

MOST_ROWS, MOST_STEPS = 64, 1_024  # that are looked at: 0.2 ms
SHORTEST = 8  # steps: of a shorter row a few equal places say nothing
LEAST_RUN = 2  # equal places at an end: one alone is an end mark, or chance
COMMON = 0.5  # share of the rows that must end, or begin, in the value that fills


@torch.no_grad()
def padding_share(tensor: object) -> float | None:
    """Return the share of the places of a batch of sequences that hold the filling at its ends; None where it holds no sequences.

    Sequences are whole numbers (rows, steps), or numbers (rows, steps, features) and (rows, features, steps) with fewer features than
    steps. The filling is the value, or the vector of features, in which most rows end, or begin.

    Example:
        >>> padding_share(torch.tensor([[5, 6, 7, 8, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0]]))
        0.6875
    """
    shape, values = shape_of(tensor), local(tensor)
    if values is None or shape is None or len(shape) not in (2, 3) or min(shape[:2]) < 2:
        return None
    if len(shape) == 2 and (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool):
        return None  # a table
    turned = len(shape) == 3 and shape[1] < shape[2]
    steps = shape[-1] if turned or len(shape) == 2 else shape[1]
    if steps < SHORTEST:
        return None
    some = host(values[:MOST_ROWS])
    sequences = some.unsqueeze(2) if len(shape) == 2 else some.transpose(1, 2) if turned else some
    stride = -(-steps // MOST_STEPS)
    return max(_filled(sequences[:, ::stride].flip(1)), _filled(sequences[:, ::stride]))


def _filled(sequences: Tensor) -> float:
    """Return the share of the places, counted from the beginning of each row, that hold what most rows begin with."""
    first = sequences[:, 0]
    alike = (first.unsqueeze(1) == first.unsqueeze(0)).all(2).sum(1)
    if float(alike.max()) < COMMON * len(sequences):
        return 0.0
    runs = (sequences == first[int(alike.argmax())]).all(2).long().cumprod(1).sum(1)
    return float((runs * (runs >= LEAST_RUN)).sum()) / (sequences.shape[0] * sequences.shape[1])
