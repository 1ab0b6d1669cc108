"""The rows of a loss call on the host: which class dimension, which targets count, which of millions are looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lossdoctor.record.probes.tensors import local, sample_rows

Floats = npt.NDArray[Any]

CLASSES = ("cross_entropy", "nll_loss", "multi_margin_loss", "linear_cross_entropy")
MOST_ELEMENTS = 65_536  # of the input and of the target that are looked at: below 1 ms of numpy (bench of loss_call.py)


@dataclass(frozen=True)
class LossRows:
    """Hold the looked-at rows of a loss call.

    Args:
        inputs: shape (rows, columns), or None where there are none; columns are classes where targets are classes.
        targets: shape (rows, 1) of class numbers, or (rows, columns) of numbers or probabilities; from all rows of the call.
        paired: the targets that belong to `inputs`, row by row; None where the shapes do not pair.
        classes: how many classes there are; None where targets are no classes.
        ignore: the class number that does not count.
        count: how many targets the call has, looked at or not.
        half: whether the inputs are of half precision.

    Example:
        >>> import torch
        >>> rows = LossRows.of("cross_entropy", torch.zeros(2, 3), torch.tensor([1, -100]), {"ignore_index": -100})
        >>> rows.classes, rows.valid(rows.targets).tolist()
        (3, [True, False])
    """

    inputs: Floats | None
    targets: Floats
    paired: Floats | None
    classes: int | None = None
    ignore: int | None = None
    count: int = 0
    half: bool = False

    @classmethod
    def of(cls, kind: str, prediction: object, target: object, bound: Mapping[str, Any]) -> LossRows | None:
        """Read the rows of a call; None where its target has no values to read."""
        inputs, targets = local(prediction), local(target)
        if targets is None or not targets.numel() or targets.is_complex() or (inputs is not None and inputs.is_complex()):
            return None
        inputs = None if inputs is None or not inputs.numel() else inputs.detach()
        if kind not in CLASSES:
            rows = _of_columns(inputs, targets.detach())
        elif inputs is None or not inputs.dim():
            return None
        else:
            rows = _of_classes(inputs, targets.detach(), bound)
        return replace(rows, half=inputs is not None and inputs.dtype.itemsize < 4)

    @property
    def soft(self) -> bool:
        """Tell whether the targets are probabilities of classes."""
        return self.classes is not None and self.targets.shape[1] > 1

    def valid(self, labels: Floats) -> npt.NDArray[np.bool_]:
        """Tell which rows count, shape (rows,)."""
        return np.ones(len(labels), dtype=bool) if self.ignore is None else labels[:, 0] != self.ignore

    def class_totals(self) -> Floats:
        """Return how often each class is the target, shape (classes,); fractions where targets are probabilities."""
        assert self.classes is not None
        if self.soft:
            return np.asarray(self.targets.sum(0))
        labels = self.targets[self.valid(self.targets), 0]
        labels = labels[(labels >= 0) & (labels < self.classes)].astype(np.int64)
        return np.bincount(labels, minlength=self.classes).astype(np.float64)


def _of_classes(inputs: Tensor, targets: Tensor, bound: Mapping[str, Any]) -> LossRows:
    dimension = 0 if inputs.dim() == 1 else 1
    weight = bound.get("linear_weight")  # the layer is inside the loss: its logits are never seen
    classes = inputs.shape[dimension] if weight is None else weight.shape[0]
    soft = weight is None and targets.shape == inputs.shape and targets.is_floating_point()
    labels = targets.movedim(dimension, -1) if soft else targets.unsqueeze(-1)
    ignore = None if soft else bound.get("ignore_index")
    shown, paired = None, None
    if weight is None:
        logits = inputs.movedim(dimension, -1)
        shown = _pick(logits, classes)
        paired = _pick(labels, classes) if labels.shape[:-1] == logits.shape[:-1] else None
    return LossRows(shown, _pick(labels, labels.shape[-1]), paired, classes, ignore, math.prod(labels.shape[:-1]))


def _of_columns(inputs: Tensor | None, targets: Tensor) -> LossRows:
    wanted = _columns_last(targets)
    shown = None if inputs is None else _pick(_columns_last(inputs), _columns_last(inputs).shape[-1])
    paired = _pick(wanted, wanted.shape[-1]) if inputs is not None and inputs.shape == targets.shape else None
    return LossRows(shown, _pick(wanted, wanted.shape[-1]), paired, count=targets.numel())


def _columns_last(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor.movedim(1, -1)


def _pick(tensor: Tensor, width: int) -> Floats:
    return np.asarray(sample_rows(tensor, MOST_ELEMENTS, width).numpy())
