"""What all probes need of tensors: their plain values, whatever kind they are, and fixed random positions in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

_PLAIN = (Tensor, torch.nn.Parameter)
_WIDE = (torch.float32, torch.float64)
_HALF = (torch.float16, torch.bfloat16)
# float32 holds whole numbers up to 2^24 only; torch before 2.3 knows no wide unsigned ones.
_LONG = (torch.float64, torch.int64, torch.int32, *(getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)))


def local(tensor: object) -> Tensor | None:
    """Return the values of a tensor as a dense plain tensor of this process, or None where there are none to read.

    Args:
        tensor: anything. Sparse tensors give their stored values, a distributed one its local part, a nested one its
            buffer; meta, fake, uninitialised and transformed (vmap, grad) tensors have no values.

    Example:
        >>> local(torch.ones(2, device="meta")) is None
        True
    """
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized):  # type: ignore[attr-defined]
        return tensor if _has_values(tensor) else None  # type: ignore[arg-type, return-value]
    try:
        return _unwrap(tensor)
    except Exception:  # a kind of tensor that we do not know
        return None


def _has_values(tensor: Tensor) -> bool:
    return not tensor.is_meta and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _unwrap(tensor: object) -> Tensor | None:
    if not isinstance(tensor, Tensor) or isinstance(tensor, UninitializedTensorMixin) or not _has_values(tensor):
        return None
    if hasattr(tensor, "to_local"):  # DTensor
        return local(tensor.to_local())
    if tensor.layout is torch.sparse_coo:
        return tensor.detach().coalesce().values()
    if tensor.layout is not torch.strided or tensor.is_nested:
        return _dense(tensor)
    if tensor.is_quantized:
        return tensor.dequantize()
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return None  # a wrapper whose storage is not its values: fake, functional, quantised by a library
    return tensor.detach().as_subclass(Tensor)


def _dense(tensor: Tensor) -> Tensor | None:
    if tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return tensor.to_dense()
    inner = tensor.detach().values() if hasattr(tensor, "values") and tensor.layout is not torch.strided else None
    return inner if type(inner) is Tensor else None


def real(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor as float32 or wider; a complex number as its two parts in a last dimension.

    Example:
        >>> real(torch.tensor([True, False])).tolist()
        [1.0, 0.0]
    """
    if tensor.dtype in _WIDE:
        return tensor
    if tensor.is_complex():
        return real(torch.view_as_real(tensor.resolve_conj()))
    return tensor.float()


def norms(tensors: Sequence[Tensor | None], device: torch.device | None = None) -> Tensor:
    """Return the 2-norm of each tensor as float32, NaN for None; without waiting for the device.

    Args:
        tensors: as `local` gives them, of any device and type.
        device: where the result lies; the first tensor's device where left out.

    Example:
        >>> norms([torch.tensor([3.0, 4.0]), None]).tolist()
        [5.0, nan]
    """
    present = [tensor for tensor in tensors if tensor is not None]
    home = device or (present[0].device if present else torch.device("cpu"))
    nothing = torch.full((), float("nan"), dtype=torch.float32, device=home)
    found: list[Tensor] = [nothing] * len(tensors)
    for positions in _alike(tensors):
        group = [tensors[position] for position in positions]
        for position, norm in zip(positions, _group_norms(group), strict=True):  # type: ignore[arg-type]
            found[position] = norm.to(home, torch.float32, non_blocking=True)
    return torch.stack(found) if found else torch.empty(0, device=home)


def _alike(tensors: Sequence[Tensor | None]) -> Iterable[list[int]]:
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tensor in enumerate(tensors):
        if tensor is not None:
            groups.setdefault((tensor.device, tensor.dtype), []).append(position)
    return groups.values()


def _group_norms(group: list[Tensor]) -> Sequence[Tensor]:
    if group[0].dtype in _HALF:  # half precision is summed as float32: 3000 in 1e6 elements overflows float16
        return torch._foreach_norm(group, 2, dtype=torch.float32)
    return torch._foreach_norm(group if group[0].dtype in _WIDE else [real(tensor) for tensor in group], 2)


@lru_cache(maxsize=64)
def positions(count: int, of: int, seed: int = 0) -> Tensor:
    """Return sorted random positions in a range, the same at every call, from an own generator.

    Strided positions are biased: a stride near a multiple of the row length hits the same columns again and again.

    Args:
        count: how many positions; all of the range where it is not larger.
        of: length of the range.

    Example:
        >>> positions(8, 4).tolist()
        [0, 1, 2, 3]
    """
    if of <= count:
        return torch.arange(of, device="cpu")
    generator = np.random.default_rng(seed)
    few = of <= 16 * count  # drawing without replacement costs the whole range
    drawn = generator.choice(of, count, replace=False) if few else generator.integers(0, of, count)
    return torch.from_numpy(np.sort(drawn).astype(np.int64))


def host(tensor: Tensor, wait: bool = True) -> Tensor:
    """Return a tensor's values on the CPU, without its graph.

    Args:
        tensor: as `local` gives it.
        wait: wait for the device where they lie on one; else the copy is on its way and holds nothing before the
            device's work queued by now is done.
    """
    return tensor.detach().to("cpu", non_blocking=not wait)


def sample_rows(tensor: Tensor, most: int, width: int | None = None, wait: bool = True) -> Tensor:
    """Return some rows of a tensor whose columns are its last dimension, on the host: shape (rows, columns).

    Args:
        tensor: as `local` gives it, at least one dimension; all but the last count as rows.
        most: how many elements at most, but never fewer than 16 rows.
        width: the number of rows is chosen for so many columns; the same rows come whenever it is the same.
        wait: as for `host`.

    Example:
        >>> sample_rows(torch.zeros(1000, 10, 4), 400).shape
        torch.Size([100, 4])
    """
    leading, columns = tensor.shape[:-1], tensor.shape[-1]
    count, wanted = math.prod(leading), max(16, most // max(width or columns, 1))
    if count > wanted:
        tensor = tensor.detach()[torch.unravel_index(positions(wanted, count).to(tensor.device), leading)]
    wide = tensor.double() if tensor.dtype in _LONG else real(tensor)
    return host(wide, wait).reshape(min(count, wanted), columns)


def shape_of(tensor: object) -> list[int] | None:
    """Return a tensor's shape as plain numbers, None where it has none.

    Example:
        >>> shape_of(torch.ones(2, 3))
        [2, 3]
    """
    if not isinstance(tensor, Tensor):
        return None
    try:
        return [int(length) for length in tensor.shape]
    except Exception:  # nested tensors and those not initialised have no plain shape
        return None
