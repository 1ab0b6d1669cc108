"""Look at the captured data: what they are, what is constant, missing or double, and whether inputs and labels belong together."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from lossdoctor.experiments.examples import Examples, Floats, examples
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.samples import samples
from lossdoctor.record.capture import inputs

RUNS_THE_MODEL = False
_FEWEST = 40  # distinct rows for the questions about labels
_MOST = 1000
_NAMED = 10
_ALONE = 0.98  # share of rows that one feature alone must tell right to be named
_BARS = 30  # of a histogram
_ENDS = 0.01  # share of a class's values at either end that may be outliers


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what the captured rows show.

    Returns:
        `inputs`: list of `shape`, `dtype`, `min`, `max`, `mean`, `std`, `not_finite` (share), `histogram` (counts in 30 even steps
        from `min` to `max`). Where targets are known, also `rows`, `distinct` (share of rows that are), `constant` (number of
        features), `kind` of the targets, `conflicts` (share of rows whose equal has another target); of numbers `targets` (`min`,
        `max`, `histogram`); of classes `classes` (value to count), `order` (share of neighbours in the order of arrival with equal
        targets), `neighbour` (share of rows whose nearest other row has their target), `shifted` (the same with targets moved by
        one row), `chance` of both, `error` (its standard error), `alone` (features that tell the target by themselves), `apart` (of
        the first of them: the smallest gap between classes over their largest spread) and `rest` (score of all other features
        together). `samples`: examples with their targets, for a page that shows them.
    """
    given = [[tensor for tensor in inputs(batch) if tensor.dim()] for batch in replay.batches]
    facts: dict[str, Any] = {"inputs": [_described([batch[i] for batch in given if len(batch) > i]) for i in range(len(given[0]))]}
    try:
        data = examples(replay, distinct=False)
    except ReplayRefused as refusal:
        return facts | {"targets": str(refusal)}
    facts |= _rows(data) | {"samples": samples(replay)}
    if data.kind == "classes" and facts["rows"] >= _FEWEST and not deadline.over:
        facts |= _labels(data)
    elif data.kind != "classes":
        facts["targets"] = _numbers(data.targets)
    return facts


def _numbers(targets: Floats) -> dict[str, Any]:
    known = targets[np.isfinite(targets)] if np.isfinite(targets).any() else np.zeros(1)
    return {"min": float(known.min()), "max": float(known.max()), "histogram": _histogram(known)}


def _described(parts: list[Any]) -> dict[str, Any]:
    table = np.concatenate([part.double().numpy().reshape(len(part), -1) for part in parts if part.shape[1:] == parts[0].shape[1:]])
    finite = np.isfinite(table)
    known = table[finite] if finite.any() else np.zeros(1)
    figures = {"min": known.min(), "max": known.max(), "mean": known.mean(), "std": known.std()}
    told: dict[str, Any] = {"shape": list(parts[0].shape), "dtype": str(parts[0].dtype).removeprefix("torch.")}
    told |= {name: float(value) for name, value in figures.items()}
    return {**told, "not_finite": float(1 - finite.mean()), "histogram": _histogram(known)}


def _histogram(values: Floats) -> list[int]:
    """Count values in even steps from the lowest to the highest."""
    largest = max(float(np.abs(values).max()), 1e-300)
    try:
        counts, _ = np.histogram(values / largest, _BARS)  # over the largest, so that no range overflows
    except ValueError:  # values so close that no steps fit between them
        return [int(values.size)]
    return [int(count) for count in counts]


def _rows(data: Examples) -> dict[str, Any]:
    table = np.nan_to_num(data.inputs, posinf=0.0, neginf=0.0)
    _, place = np.unique(table, axis=0, return_inverse=True)
    targets = data.targets.reshape(len(data.targets), -1)
    pairs = np.unique(np.column_stack([place.ravel(), targets]), axis=0)
    groups, counts = np.unique(pairs[:, 0], return_counts=True)
    torn = set(groups[counts > 1])
    return {
        "rows": len(table),
        "distinct": len(np.unique(place)) / max(1, len(table)),
        "constant": int((table.std(0) == 0).sum()),
        "kind": data.kind,
        "conflicts": float(np.mean([each in torn for each in place.ravel()])) if len(table) else 0.0,
    }


def _labels(data: Examples) -> dict[str, Any]:
    labels = data.targets.ravel()
    values, counts = np.unique(labels, return_counts=True)
    shares = counts / counts.sum()
    chance = float((shares**2).sum())
    near = _nearest(data.inputs[:_MOST])
    own = labels[: len(near)]
    facts: dict[str, Any] = {"classes": {f"{value:g}": int(count) for value, count in zip(values, counts, strict=True)}}
    facts |= {"order": float((labels[1:] == labels[:-1]).mean()), "chance": chance, "error": math.sqrt(chance * (1 - chance) / len(own))}
    facts |= {"neighbour": float((own[near] == own).mean()), "shifted": float((np.roll(own, 1)[near] == own).mean())}
    if data.integer:
        return facts | {"alone": []}
    _, first = np.unique(np.column_stack([data.inputs, labels]), axis=0, return_index=True)  # double rows would be known beforehand
    table, labels = data.inputs[np.sort(first)], labels[np.sort(first)]
    alone = _alone(table, labels)
    leak = {"apart": _apart(table[:, alone[0]], labels), "rest": _rest(table, labels, alone)} if alone else {}
    return facts | {"alone": alone, **leak}


def _apart(values: Floats, labels: Floats) -> float:
    """Return the smallest gap between neighbouring classes on a feature, over the largest spread within one."""
    parts = sorted((values[labels == label] for label in np.unique(labels)), key=lambda part: float(part.mean()))
    ends = [(float(np.quantile(part, _ENDS)), float(np.quantile(part, 1 - _ENDS))) for part in parts]
    gap = min(low - high for (_, high), (low, _) in itertools.pairwise(ends))
    return gap / max(max(float(part.std()) for part in parts), 1e-9 * float(np.abs(values).max() or 1.0))


def _rest(table: Floats, labels: Floats, alone: list[int]) -> float | None:
    """Return how well all features but those tell the classes, by trees on held-out rows; None where there are no others."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import cross_val_score

    rest = np.delete(np.nan_to_num(table[:_MOST], posinf=0.0, neginf=0.0), alone, axis=1)
    if not rest.shape[1]:
        return None
    return float(cross_val_score(ExtraTreesClassifier(50, random_state=0), rest, labels[:_MOST], cv=3).mean())


def _nearest(table: Floats) -> Any:
    """Return, for each row, the nearest row that is not its equal."""
    from sklearn.neighbors import NearestNeighbors

    known = np.nan_to_num(table, posinf=0.0, neginf=0.0)
    spread = known.std(0)
    scaled = known / np.where(spread > 1e-12, spread, 1.0)
    distances, places = NearestNeighbors(n_neighbors=min(10, len(scaled))).fit(scaled).kneighbors(scaled)
    first = np.where(distances > 1e-9, np.arange(distances.shape[1]), distances.shape[1] - 1).min(1)
    return places[np.arange(len(scaled)), first]


def _alone(table: Floats, labels: Floats) -> list[int]:
    """Return the features that tell the classes by thresholds alone, by a tree of one feature judged on held-out rows."""
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < 3 or counts.max() / counts.sum() > 0.9 or table.shape[1] > 200:
        return []
    known = np.nan_to_num(table[:_MOST], posinf=0.0, neginf=0.0)
    model = DecisionTreeClassifier(max_leaf_nodes=2 * len(counts), random_state=0)
    scores = [float(cross_val_score(model, known[:, [i]], labels[:_MOST], cv=3).mean()) for i in range(known.shape[1])]
    return [i for i, score in enumerate(scores) if score >= _ALONE][:_NAMED]
