"""Validation data beside training data: the same rows, nearly the same rows, other rows, or other rows at every pass?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossdoctor.experiments.examples import Floats, flat, rows_of
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.record.capture import inputs
from lossdoctor.record.probes.hashes import row_hashes

RUNS_THE_MODEL = False
FEWEST = 40  # rows on either side
_LEAST_KNOWN = 0.3
_NEAR, _FAR = 20, 100  # neighbours between which distances grow as the dimension of the data has it


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how validation rows lie to training rows, and to those of the next pass.

    Returns:
        `rows` and `trained` (of each side); `features` and `distinct` (largest number of distinct values in one: rows of few small
        ones may be alike by chance); `integer` (whether all values are whole: tokens, counts); `same` (share of validation rows that
        were trained on, of the pass that has the fewest) and `repeated` (share of them that came before in the pass); `jump` and
        `own_jump` (how much nearer the nearest training row is than the dimension of the data allows, of validation rows and of
        training rows); `again` (share of rows that the next pass has at the same place) and `nearer` (how often the row at the
        same place of the next pass is nearer than another; .5 is chance), None where there was one pass; where targets are classes
        `trained_classes` and `held_classes` (class to count).
    """
    classes = _classes(replay)
    passes = [torch.cat(parts) for parts in replay.captures.passes if parts and len({part.shape[1:] for part in parts}) == 1]
    passes = [each for each in passes if len(each) >= FEWEST]
    if not passes:
        if classes:
            return classes
        raise ReplayRefused("no validation rows were seen")
    trained = [tensor for batch in replay.batches for tensor in inputs(batch)[:1] if tensor.shape[1:] == passes[0].shape[1:]]
    if sum(len(tensor) for tensor in trained) < FEWEST:
        if classes:
            return classes
        raise ReplayRefused("training and validation rows differ in shape")
    train = _table(torch.cat(trained))
    first = min((each for each in passes if each.shape[1:] == passes[0].shape[1:]), key=lambda each: _same(_table(each), train))
    held = _table(first)
    facts: dict[str, Any] = {"rows": len(held), "trained": len(train), "features": held.shape[1], "distinct": _distinct(train)}
    facts["integer"] = bool((held == held.round()).all())
    facts |= {"same": _same(held, train), "repeated": 1.0 - len(np.unique(_hashes(held))) / len(held)}
    facts |= _again(first, passes) | classes
    if first.is_floating_point():
        facts |= {"jump": _jump(held, train), "own_jump": _jump(train[::2], train[1::2])}
    return facts


def _classes(replay: Replay) -> dict[str, Any]:
    """Count the classes of training targets and of those of the validation pass that has most; empty where they are none."""
    found = [rows_of(batch) for batch in replay.batches]
    trained = [pair[1].flatten() for pair in found if pair is not None and not pair[1].is_floating_point() and pair[1][0].numel() == 1]
    passes = [torch.cat([part.flatten() for part in each]) for each in replay.captures.wanted if each]
    held = [each for each in passes if not each.is_floating_point() and len(each) >= FEWEST]
    if not trained or not held:
        return {}
    counts = [torch.unique(each, return_counts=True) for each in (torch.cat(trained), max(held, key=len))]
    names = ("trained_classes", "held_classes")
    return {
        name: {str(int(value)): int(count) for value, count in zip(*each, strict=True)} for name, each in zip(names, counts, strict=True)
    }


def _table(tensor: Tensor) -> Floats:
    table: Floats = np.nan_to_num(flat([tensor]).numpy(), posinf=0.0, neginf=0.0)
    return table


def _hashes(table: Floats) -> Any:
    return row_hashes([torch.from_numpy(table)])


def _same(held: Floats, train: Floats) -> float:
    return float(np.isin(_hashes(held), _hashes(train)).mean())


def _distinct(table: Floats) -> int:
    columns = np.linspace(0, table.shape[1] - 1, min(64, table.shape[1])).astype(int)
    return max(len(np.unique(table[:, column])) for column in columns)


def _again(first: Tensor, passes: list[Tensor]) -> dict[str, Any]:
    second = next((each for each in passes if each is not first and each.shape == first.shape), None)
    if second is None:
        return {"again": None, "nearer": None}
    one, two = _table(first), _table(second)
    own = np.linalg.norm(one - two, axis=1)
    others = [np.linalg.norm(one - np.roll(two, shift, axis=0), axis=1) for shift in (1, 7, 13)]
    nearer = float(np.mean([(own < other) + 0.5 * (own == other) for other in others]))
    return {"again": float((own == 0).mean()), "nearer": nearer}


def _jump(rows: Floats, among: Floats) -> float | None:
    """Return, as a median over rows, by what factor the nearest neighbour is nearer than the growth of distances predicts.

    In data of dimension d the k-th neighbour lies k ** (1 / d) times as far as the first; d follows from the 20th and 100th.
    """
    from sklearn.neighbors import NearestNeighbors

    if len(among) < 2 * _FAR:
        return None
    spread = among.std(0)
    scaled = [part / np.where(spread > 1e-12, spread, 1.0) for part in (rows, among)]
    distances = NearestNeighbors(n_neighbors=_FAR).fit(scaled[1]).kneighbors(scaled[0][:300])[0]
    nearest, near, far = distances[:, 0], distances[:, _NEAR - 1], distances[:, _FAR - 1]
    known = (far > near) & (nearest > 0)  # equal rows are counted as such
    if known.mean() < _LEAST_KNOWN:
        return None
    growth = np.log(far[known] / near[known]) / np.log(_FAR / _NEAR)  # 1 / d
    predicted = near[known] / _NEAR**growth
    return float(np.median(np.minimum(predicted / np.maximum(nearest[known], 1e-12), 1e3)))
