"""The captured rows as a table of inputs and targets, for baselines: distinct rows, split by row hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lossdoctor.experiments.replay import Replay, ReplayRefused
from lossdoctor.record.capture import Batch, counts_rows, inputs, row_constants
from lossdoctor.record.probes.hashes import row_hashes

Floats = npt.NDArray[np.float64]
_MOST_FEATURES = 4096
_MOST_CLASSES = 1000


@dataclass
class Examples:
    """Hold distinct captured examples.

    Args:
        kind: `classes`, `numbers` (regression), `tokens` (a class per position: language models, taggers).
        inputs: shape (rows, features); token ids where `integer`.
        targets: shape (rows,) classes, (rows, outputs) numbers, or (rows, positions) tokens.
        held_out: shape (rows,), which rows are held out; the same rows in every run.
        integer: whether the inputs are token ids or categories.
    """

    kind: str
    inputs: Floats
    targets: npt.NDArray[np.float64]
    held_out: npt.NDArray[np.bool_]
    integer: bool

    def __len__(self) -> int:
        return len(self.inputs)


def examples(replay: Replay, share: float = 0.25, *, distinct: bool = True) -> Examples:
    """Gather the captured rows; a quarter of the distinct ones, chosen by hash, is held out.

    Args:
        share: of the rows that are held out.
        distinct: whether rows that came before are left out.

    Raises:
        ReplayRefused: inputs and targets cannot be told apart, or do not belong row to row.
    """
    rows: list[tuple[list[Tensor], Tensor]] = []
    for batch in replay.batches:
        found = rows_of(batch)
        if found is not None:
            rows.append(found)
    if not rows:
        raise ReplayRefused("no targets were found among what the loss is made of")
    features = torch.cat([flat(given) for given, _ in rows]).double()
    targets = torch.cat([target.reshape(len(target), -1) for _, target in rows])
    hashes = row_hashes([features])
    _, first = np.unique(hashes, return_index=True)
    first = np.sort(first) if distinct else np.arange(len(hashes))
    integer = not any(tensor.is_floating_point() for given, _ in rows for tensor in given)
    kind = _kind(targets)
    held_out = (hashes[first] % np.uint64(1000)).astype(np.float64) < share * 1000
    chosen = targets.double().numpy()[first]
    return Examples(kind, features.numpy()[first], chosen[:, 0] if kind == "classes" else chosen, held_out, integer)


def rows_of(batch: Batch) -> tuple[list[Tensor], Tensor] | None:
    """Return the inputs of a captured step and its targets, both by row; None where they cannot be told apart."""
    given = [tensor for tensor in inputs(batch) if tensor.dim() and tensor.shape[0] == batch.rows]
    mine = {id(tensor) for tensor in given}
    constants = batch.program.constants
    rest = [
        constants[number].reshape(batch.rows, -1) if entries > 1 else constants[number]
        for number, entries in row_constants(batch.program, batch.rows).items()
    ]
    targets = [tensor for tensor in rest if id(tensor) not in mine and tensor.dtype != torch.bool and not counts_rows(tensor)]
    if not given:
        return None
    if not targets:  # an autoencoder: the inputs are the targets
        return None
    return given, targets[0]


def flat(given: Sequence[Tensor]) -> Tensor:
    """Return the tensors of each row as one row of numbers."""
    table = torch.cat([tensor.reshape(len(tensor), -1).double() for tensor in given], 1)
    if table.shape[1] > _MOST_FEATURES:  # evenly spaced columns stand for a large image
        table = table[:, torch.linspace(0, table.shape[1] - 1, _MOST_FEATURES).long()]
    return table


def _kind(targets: Tensor) -> str:
    whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
    few = len(torch.unique(targets)) <= min(_MOST_CLASSES, max(2, len(targets) // 4))
    if targets.shape[1] == 1:
        return "classes" if whole and few else "numbers"
    if not targets.is_floating_point():
        return "tokens"
    one_hot = whole and bool((targets.sum(1) == 1).all()) and bool((targets >= 0).all())
    return "one_hot" if one_hot else "numbers"
