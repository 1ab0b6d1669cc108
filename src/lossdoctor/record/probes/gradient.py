"""The signals `grad_norms` and `grad_norm`: the 2-norm of each parameter's gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lossdoctor.record.probes.tensors import local, norms


@torch.no_grad()
def gradient_norms(parameters: Sequence[Tensor]) -> Tensor:
    """Return the 2-norm of each gradient, NaN where there is none, without waiting for the device.

    100 parameters of 128 x 128: 0.5 ms, of which 0.4 ms is reading the gradients (2 cores, busy machine).

    Args:
        parameters: in the order of the track.

    Returns:
        float32, shape (parameters,), on the first parameter's device.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> (weight * torch.tensor([3.0, 4.0])).sum().backward()
        >>> gradient_norms([weight, torch.zeros(1, requires_grad=True)]).tolist()
        [5.0, nan]
    """
    home = parameters[0].device if parameters else None
    return norms([local(parameter.grad) for parameter in parameters], home if home is None or home.type != "meta" else None)
