"""Read a data set's examples, and find the part of it that draws: switched off, the same examples come without augmentation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.loader import _label, _same
from lossdoctor.experiments.replay import Deadline
from lossdoctor.record.program import tensors

_LOOKED_AT = 6  # examples that must come out alike twice: what draws may do so for some only
_HELD = ("dataset", "datasets")  # where torch's own wrappers hold the data sets within
_MOST_CHANGES = 60


def draws(dataset: Any, rows: int) -> bool:
    """Tell whether an example differs from one reading to the next."""
    return any(not _same(dataset[place], dataset[place]) for place in _places(rows))


def _places(rows: int) -> list[int]:
    return sorted({place * (rows - 1) // (_LOOKED_AT - 1) for place in range(_LOOKED_AT)})


def read(dataset: Any, places: list[int], deadline: Deadline) -> tuple[Tensor, Tensor]:
    """Read examples with a class: their first tensors of numbers and their classes, those that came in time."""
    given: list[Tensor] = []
    labels: list[int] = []
    for place in places:
        example = dataset[place]
        label = _label(example)
        first = next((each for each in tensors(example) if each.is_floating_point()), None)
        if first is None and isinstance(example, (tuple, list)) and hasattr(example[0], "__array__"):
            first = torch.as_tensor(example[0])
        if label is None or first is None or (given and first.shape != given[0].shape):
            break
        given.append(first.detach())
        labels.append(label)
        if deadline.over:
            break
    return (torch.stack(given), torch.tensor(labels)) if given else (torch.zeros(0), torch.zeros(0, dtype=torch.long))


def without_drawing(dataset: Any, rows: int) -> tuple[Any, str]:
    """Return a copy of a data set with the one part off without which nothing is drawn, and that part's name; None where there is none."""
    before = [dataset[place] for place in _places(rows)]
    for number, (changed, what) in enumerate(_changes(dataset)):
        if number >= _MOST_CHANGES:
            break
        try:
            after = [changed[place] for place in _places(rows)]
            if _alike(before, after) and not draws(changed, rows):
                return changed, what
        except Exception:
            continue
    return None, ""


def _alike(before: list[Any], after: list[Any]) -> bool:
    """Tell whether examples kept their shapes and classes, and still differ from one another."""
    shapes = [[[(each.shape, each.dtype) for each in tensors(example)] for example in side] for side in (before, after)]
    labels = [[_label(example) for example in side] for side in (before, after)]
    return shapes[0] == shapes[1] and labels[0] == labels[1] and any(not _same(after[0], other) for other in after[1:])


def _changes(dataset: Any, depth: int = 3) -> Iterator[tuple[Any, str]]:
    """Yield copies with one attribute switched off: a switch, a strength, a function, one of a row of functions."""
    for name, value in list(getattr(dataset, "__dict__", {}).items()):
        for other, told in _off(value):
            yield _with(dataset, name, other), f"{name}{told}"
        if depth and name in _HELD:
            parts = value if isinstance(value, list) else [value]
            for place, part in enumerate(parts):
                for changed, what in _changes(part, depth - 1):
                    held = [changed if i == place else each for i, each in enumerate(parts)] if isinstance(value, list) else changed
                    yield _with(dataset, name, held), what


def _with(thing: Any, name: str, value: Any) -> Any:
    changed = copy.copy(thing)
    changed.__dict__[name] = value
    return changed


def _off(value: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(value, bool):
        if value:  # a switch is only turned off: what a script left off may write or delete
            yield False, ""
    elif isinstance(value, (int, float)):
        yield type(value)(0), ""
    elif callable(value) and not isinstance(value, (type, Tensor)):
        row = getattr(value, "transforms", None)
        if isinstance(row, (list, tuple)):
            for place in range(len(row)):
                yield _with(value, "transforms", [each for i, each in enumerate(row) if i != place]), f" without {_named(row[place])}"
        for name, inner in list(getattr(value, "__dict__", {}).items()):
            if isinstance(inner, (bool, int, float)):
                yield _with(value, name, type(inner)(0)), f".{name}"
        yield (lambda given, *args, **kwargs: given), ""
        yield None, ""


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
