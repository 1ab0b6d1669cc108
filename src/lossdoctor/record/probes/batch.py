"""The signal `batch`: what the inputs and the targets of one batch look like."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lossdoctor.record.probes.padding import padding_share
from lossdoctor.record.probes.tensors import local, sample_rows, shape_of

Floats = npt.NDArray[Any]

MOST_TENSORS = 4  # of the arguments of one forward
MOST_ELEMENTS = 32_768  # of a tensor that are looked at: about 1 ms of numpy, the mean to 0.6 % of a standard deviation
MOST_COLUMNS = 1_024  # that are looked at
MOST_FEATURES = 64  # that are written down one by one
MOST_CLASSES = 1_000
FEW_VALUES = 20  # whole numbers in a floating-point target: up to so many values they are classes (starting value)
FAR = 20.0  # standard deviations of the rest between it and a sentinel (starting value)
LEAST_REST, MOST_ALIKE = 16, 0.5  # elements beside a sentinel, and the share of them that may be alike (starting values)
_MEASURED = (
    "mean", "std", "min", "max", "finite", "features", "feature_axis", "feature_means", "feature_stds", "feature_std_min",
    "feature_std_max", "feature_offset_max", "constant_features", "sentinel", "sentinel_share",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Hold the rows of a tensor that are looked at.

    Args:
        values: shape (rows, columns), on the host; None where there are none to read.
        axis: the dimension of the tensor whose columns they are.
    """

    shape: list[int] | None
    dtype: str
    integer: bool
    values: Tensor | None
    axis: int | None = None


def describe_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe the first tensors among the arguments of a forward; waits for the device where they lie on one.

    64 x 64 floats: 0.15 ms; 64 x 3 x 224 x 224: 2 ms (1 thread, busy machine).

    Args:
        args, kwargs: of the outermost model; tensors are found in lists, dicts, dataclasses and the like, two levels deep.

    Returns:
        For each tensor the fields of `batch.inputs` in docs/architecture.md.

    Example:
        >>> (fields,) = describe_inputs((torch.tensor([[1.0, 5.0], [3.0, 5.0]]),), {})
        >>> fields["feature_means"], fields["constant_features"]
        ([2.0, 5.0], 1)
    """
    tensors = list(islice(find_tensors((*args, *kwargs.values())), MOST_TENSORS))
    return [{**describe_sample(take_sample(tensor)), "padding": padding_share(tensor)} for tensor in tensors]


def describe_target(tensor: object) -> dict[str, Any] | None:
    """Describe a target: the fields of an input, and its classes where it has some; None where it is no tensor.

    Example:
        >>> fields = describe_target(torch.tensor([2, 0, 2]))
        >>> fields["class_values"], fields["class_counts"]
        ([0, 2], [1, 2])
    """
    if not isinstance(tensor, Tensor):
        return None
    sample = take_sample(tensor)
    return {**describe_sample(sample), **_classes(sample)}


def find_tensors(value: object, depth: int = 3) -> Iterator[Tensor]:
    """Find the tensors in a nested value, in order.

    Example:
        >>> [tuple(tensor.shape) for tensor in find_tensors({"ids": torch.zeros(2), "more": [torch.zeros(3), "text"]})]
        [(2,), (3,)]
    """
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for part in _parts(value):
            yield from find_tensors(part, depth - 1)


def _parts(value: object) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    if isinstance(value, str | bytes | int | float | type | torch.nn.Module | None):
        return ()
    held = getattr(value, "__dict__", None)  # batches of libraries: plain objects that hold tensors
    return list(held.values()) if isinstance(held, dict) else ()


@torch.no_grad()
def take_sample(tensor: Tensor, wait: bool = True) -> Sample:
    """Take the rows of one tensor that `describe_sample` looks at."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    integer = not (tensor.is_floating_point() or tensor.is_complex())
    shape, values = shape_of(tensor), local(tensor)
    if values is None or shape is None or not values.numel():
        return Sample(shape, dtype, integer, None)
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj()).flatten(-2) if values.dim() else torch.view_as_real(values.resolve_conj())
    axis = feature_axis(tuple(values.shape))
    columns = values.reshape(-1, 1) if axis is None else values.movedim(axis, -1)
    if columns.shape[-1] > MOST_COLUMNS:
        columns = columns[..., torch.linspace(0, columns.shape[-1] - 1, MOST_COLUMNS, device=columns.device).long()]
    return Sample(shape, dtype, integer, sample_rows(columns, MOST_ELEMENTS, wait=wait), axis)


def feature_axis(shape: Sequence[int]) -> int | None:
    """Return the dimension that holds the features; None where there is none.

    The columns of a table, the channels of images. A sequence is (rows, channels, length) or (rows, length, features):
    features are fewer than places. Images with their channels last have at most four of them.

    Example:
        >>> feature_axis((64, 784)), feature_axis((64, 3, 32, 32)), feature_axis((64, 100, 7)), feature_axis((64,))
        (1, 1, 2, None)
    """
    if len(shape) < 2:
        return None
    last = len(shape) - 1
    if len(shape) == 3:
        return 1 if shape[1] < shape[2] else 2
    return last if len(shape) in (4, 5) and shape[last] <= 4 < shape[1] else 1


@np.errstate(all="ignore")  # a warning would stand among the script's own output
def describe_sample(sample: Sample) -> dict[str, Any]:
    """Compute the fields of a sample."""
    described = {"shape": sample.shape, "dtype": sample.dtype, "integer": sample.integer, **dict.fromkeys(_MEASURED)}
    if sample.values is None or not sample.values.numel():
        return described
    # Column by column in memory: sums down three columns of ten thousand rows are ten times faster than across.
    columns = _Columns.of(np.asarray(sample.values.numpy(), dtype=np.float64, order="F"))
    described |= columns.overall()
    if not sample.integer and sample.axis is not None and columns.counts.any():
        described |= {"feature_axis": sample.axis, "features": (sample.shape or [0])[sample.axis]}
        described |= columns.features() | columns.sentinel()
    return described


@dataclass(frozen=True)
class _Columns:
    """Hold values, shape (rows, columns), those that are not finite as 0, and what each column's finite ones give."""

    values: Floats
    counts: Floats
    means: Floats
    variances: Floats
    lowest: Floats
    highest: Floats

    @classmethod
    def of(cls, values: Floats) -> _Columns:
        finite = np.isfinite(values)
        if finite.all():
            counts = np.full(values.shape[1], len(values))
            return cls(values, counts, values.mean(0), values.var(0), values.min(0), values.max(0))
        counts, kept = finite.sum(0), np.where(finite, values, 0.0)
        means = kept.sum(0) / np.maximum(counts, 1)
        variances = (np.where(finite, kept - means, 0.0) ** 2).sum(0) / np.maximum(counts, 1)
        lowest, highest = np.where(finite, values, np.inf).min(0), np.where(finite, values, -np.inf).max(0)
        return cls(np.where(finite, values, np.nan), counts, means, variances, lowest, highest)

    def overall(self) -> dict[str, Any]:
        """Return what all columns together give."""
        total = float(self.counts.sum())
        found: dict[str, Any] = {"finite": total / self.values.size}
        if total:
            mean = float((self.means * self.counts).sum() / total)
            square = float(((self.variances + (self.means - mean) ** 2) * self.counts).sum() / total)
            found |= {"mean": mean, "std": math.sqrt(square), "min": float(self.lowest.min()), "max": float(self.highest.max())}
        return found

    def features(self) -> dict[str, Any]:
        """Return the spread of the columns."""
        shown = np.unique(np.linspace(0, len(self.means) - 1, MOST_FEATURES).astype(int))
        stds = np.sqrt(self.variances)
        constant = (self.highest == self.lowest) & (self.counts > 1)
        vary = (self.highest > self.lowest) & (stds > 0)
        found = {
            "feature_means": self.means[shown].tolist(),
            "feature_stds": stds[shown].tolist(),
            "constant_features": int(constant.sum()),
        }
        if vary.any():
            offsets = np.abs(self.means[vary]) / stds[vary]
            found |= {"feature_std_min": float(stds[vary].min()), "feature_std_max": float(stds[vary].max())}
            found["feature_offset_max"] = float(offsets.max())
        return found

    def sentinel(self) -> dict[str, Any]:
        """Return the value that repeats at one end of its column, far from the rest, and the share of elements that are such."""
        share, most, value = 0.0, 0.0, None
        for ends in (self.lowest, self.highest):
            repeats = self._repeats(ends)
            share += float(repeats.sum()) / self.values.size
            if repeats.max() > most:
                most, value = float(repeats.max()), float(ends[repeats.argmax()])
        return {"sentinel_share": share, "sentinel": value}

    def _repeats(self, ends: Floats) -> Floats:
        """Return for each column how often its end value occurs, 0 where it is no sentinel."""
        repeats = (self.values == ends).sum(0)
        chosen = np.flatnonzero((repeats > 1) & (repeats < self.counts))
        found = np.zeros(len(ends))
        if not len(chosen):
            return found
        values, end = self.values[:, chosen], ends[chosen]
        apart = np.nan_to_num(values - end)  # 0 for the end value itself
        rest = self.counts[chosen] - repeats[chosen]
        means = apart.sum(0) / rest
        spread = np.sqrt(np.maximum((apart**2).sum(0) / rest - means**2, 0.0))
        far = (rest >= LEAST_REST) & (np.abs(means) > FAR * spread)
        for place in np.flatnonzero(far):
            others = values[:, place][(values[:, place] != end[place]) & ~np.isnan(values[:, place])]
            # The rest must vary: rare pixels among zeros are far from them as well, and are no sentinel.
            if (others == np.median(others)).mean() <= MOST_ALIKE:
                found[chosen[place]] = repeats[chosen[place]]
        return found


def _classes(sample: Sample) -> dict[str, Any]:
    nothing: dict[str, Any] = {"class_values": None, "class_counts": None}
    if sample.values is None or not sample.values.numel():
        return nothing
    found, counts = np.unique(sample.values.numpy(), return_counts=True)
    most = MOST_CLASSES if sample.integer else FEW_VALUES
    if len(found) > most or not np.array_equal(found, np.round(found)):
        return nothing
    return {"class_values": found.astype(np.int64).tolist(), "class_counts": counts.tolist()}
