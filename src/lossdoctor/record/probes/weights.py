"""The signal `weight_norms`: the 2-norm of each parameter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lossdoctor.record.probes.tensors import local, norms


@torch.no_grad()
def weight_norms(parameters: Sequence[Tensor]) -> Tensor:
    """Return the 2-norm of each parameter, NaN where it has no values, without waiting for the device.

    Args:
        parameters: in the order of the track.

    Returns:
        float32, shape (parameters,), on the first parameter's device.

    Example:
        >>> weight_norms([torch.tensor([3.0, 4.0])]).tolist()
        [5.0]
    """
    return norms([local(parameter) for parameter in parameters])
