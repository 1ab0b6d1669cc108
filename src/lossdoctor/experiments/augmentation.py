"""Does augmentation leave what the label says? The same rows with it and without, to a small reference model each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossdoctor.experiments.examples import rows_of
from lossdoctor.experiments.plain_rows import draws, read, without_drawing
from lossdoctor.experiments.reference import learn, right
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.record.probes.hashes import row_hashes

RUNS_THE_MODEL = False
FEWEST, MOST = 120, 600  # rows of each side
_HELD_OUT = 0.3
_MOST_CLASSES = 100
Rows = tuple[Tensor, Tensor]


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how well a reference model tells held-out rows as they are trained on, and without their augmentation.

    Returns:
        `source` of the plain rows: `switched` (the data set with the part off that draws), `data set` (as it gives them, before the script
        changes them), `validation` (other rows); `what` was switched off; `rows` (of each side), `classes`; `chance` (share of the largest
        class), `error` (standard error of the scores), `plain` and `augmented` (share of held-out rows told right by a reference trained on
        rows of the same side) and `onto` (by the reference trained on augmented rows, of plain ones); `distance` (how well validation
        rows can be told from augmented ones, as the area under a curve: .5 is not at all; None where the plain rows are the same rows).
    """
    source, what, plain, augmented = _sides(replay, deadline)
    rows = min(len(plain[0]), len(augmented[0]), MOST)
    if rows < FEWEST:
        raise ReplayRefused(f"{rows} rows with a class are too few to ask a reference model")
    values, codes = torch.unique(torch.cat([plain[1][:rows], augmented[1][:rows]]), return_inverse=True)
    if not 2 <= len(values) <= _MOST_CLASSES:
        raise ReplayRefused("the targets are no classes")
    facts: dict[str, Any] = {"source": source, "what": what, "rows": rows, "classes": len(values)}
    sides = {"plain": (plain[0][:rows].float(), codes[:rows]), "augmented": (augmented[0][:rows].float(), codes[rows:])}
    facts |= _scores(sides, deadline)
    return facts | {"distance": _distance(plain[0][:rows], augmented[0][:rows]) if source == "validation" else None}


def _sides(replay: Replay, deadline: Deadline) -> tuple[str, str, Rows, Rows]:
    """Return plain and augmented rows with their classes, the plainest that can be had."""
    way = replay.captures.loader
    dataset = way["dataset"]() if way is not None else None
    length = int(way.get("rows") or 0) if way is not None else 0
    readable = dataset is not None and hasattr(dataset, "__getitem__") and length > 0
    if readable and draws(dataset, length):
        quiet, what = without_drawing(dataset, length)
        if quiet is not None:
            places = torch.randperm(length, generator=torch.Generator().manual_seed(0))[:MOST].tolist()
            return "switched", what, read(quiet, places, deadline.half), read(dataset, places, deadline.half)
        return "validation", "", _validation(replay), _captured(replay, length)
    entered = _captured(replay, length or MOST)
    if readable:
        places = torch.randperm(length, generator=torch.Generator().manual_seed(0))[:MOST].tolist()
        given = read(dataset, places, deadline.half)
        if len(given[0]) and given[0].shape[1:] == entered[0].shape[1:]:
            return "data set", "", given, entered
    return "validation", "", _validation(replay), entered


def _captured(replay: Replay, most: int) -> Rows:
    """Return rows as they entered the model, no more than an epoch holds, so that none comes twice."""
    found = [pair for batch in replay.batches if (pair := rows_of(batch)) is not None]
    kept = [
        (given[0], target) for given, target in found if given[0].is_floating_point() and given[0].shape[1:] == found[0][0][0].shape[1:]
    ]
    if not kept:
        raise ReplayRefused("the inputs are no numbers, or have no targets")
    targets = torch.cat([target.reshape(len(target), -1) for _, target in kept])
    if targets.shape[1] != 1 or targets.is_floating_point():
        raise ReplayRefused("the targets are no classes")
    inputs = torch.cat([given for given, _ in kept])
    _, first = np.unique(row_hashes([inputs]), return_index=True)
    rows = torch.from_numpy(np.sort(first))[: min(most, MOST)]
    return inputs[rows], targets[rows, 0]


def _validation(replay: Replay) -> Rows:
    """Return the rows of a validation pass with their classes."""
    for given, wanted in zip(replay.captures.passes, replay.captures.wanted, strict=False):
        if not given or not wanted or len({part.shape[1:] for part in given}) != 1:
            continue
        inputs, targets = torch.cat(given), torch.cat([part.flatten() for part in wanted])
        if len(inputs) == len(targets) and inputs.is_floating_point() and not targets.is_floating_point():
            return inputs[:MOST], targets[:MOST]
    raise ReplayRefused("no rows without augmentation were found: the data set's drawing cannot be switched off, and none were validated")


def _scores(sides: dict[str, Rows], deadline: Deadline) -> dict[str, Any]:
    plain, augmented = sides["plain"], sides["augmented"]
    if plain[0].shape[1:] != augmented[0].shape[1:]:
        raise ReplayRefused("rows with and without augmentation differ in shape")
    cut = int(len(plain[0]) * (1 - _HELD_OUT))
    of_plain = learn(plain[0][:cut], plain[1][:cut], deadline.half)
    of_augmented = learn(augmented[0][:cut], augmented[1][:cut], deadline)
    test = plain[0][cut:], plain[1][cut:]
    chance = float(torch.bincount(plain[1]).max()) / len(plain[1])
    facts = {"chance": chance, "error": (max(chance * (1 - chance), 0.01) / len(test[0])) ** 0.5}
    facts |= {"plain": right(of_plain, *test), "augmented": right(of_augmented, augmented[0][cut:], augmented[1][cut:])}
    return facts | {"onto": right(of_augmented, *test)}


def _distance(plain: Tensor, augmented: Tensor) -> float | None:
    from lossdoctor.experiments.told_apart import told_apart

    return told_apart(plain.flatten(1).double().numpy(), augmented.flatten(1).double().numpy())
