"""Read the training's data set again, as its loader does: is it sorted, does it draw, do its workers draw alike?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.record.program import tensors

RUNS_THE_MODEL = False
_PAIRS = 60  # neighbours, and as many rows drawn at random
_DRAWS = 4  # of one example, by each worker
_LONGEST = 20.0  # s to wait for a worker


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what the data set shows when it is read again.

    Returns:
        `rows`, `workers`, `shuffle`; `draws` (whether an example differs from one reading to the next); `neighbours` and `apart` (share of
        neighbours, and of rows drawn at random, with the same whole-number target; left out where targets are none);
        `workers_alike` (share of the draws of one example that are the same in two workers; left out where nothing is drawn, or without
        workers).
    """
    way = replay.captures.loader
    dataset = way["dataset"]() if way is not None else None
    if way is None or dataset is None or not way.get("rows") or not hasattr(dataset, "__getitem__"):
        raise ReplayRefused("the training has no data loader whose data set can be read again")
    rows = int(way["rows"])
    facts: dict[str, Any] = {"rows": rows, "workers": int(way.get("workers") or 0), "shuffle": bool(way.get("shuffle"))}
    facts["draws"] = any(not _same(dataset[place], dataset[place]) for place in {0, rows // 2})
    if way.get("sampler") == "SequentialSampler":
        facts |= _order(dataset, rows, deadline)
    if facts["draws"] and facts["workers"] >= 2:
        facts["workers_alike"] = _alike(dataset, way, facts["workers"])
    return facts


def _same(one: Any, other: Any) -> bool:
    pairs = list(zip(_values(one), _values(other), strict=False))
    return bool(pairs) and all(torch.equal(a, b) for a, b in pairs)


def _values(example: Any) -> list[Tensor]:
    found = list(tensors(example))
    parts = example if isinstance(example, (tuple, list)) else example.values() if isinstance(example, dict) else [example]
    return found + [torch.as_tensor(part) for part in parts if not isinstance(part, Tensor) and hasattr(part, "__array__")]


def _order(dataset: Any, rows: int, deadline: Deadline) -> dict[str, Any]:
    """Compare the targets of neighbours with those of rows drawn at random."""
    generator = torch.Generator().manual_seed(0)
    near = 0
    places = torch.randint(0, max(1, rows - 1), (_PAIRS,), generator=generator).tolist()
    labels: list[int] = []
    for place in places:
        pair = [_label(dataset[each]) for each in (place, min(place + 1, rows - 1))]
        if None in pair:
            return {}
        near += pair[0] == pair[1]
        labels.append(pair[0])  # type: ignore[arg-type]
        if deadline.over:
            break
    apart = [a == b for place, a in enumerate(labels) for b in labels[place + 1 :]]
    return {"neighbours": near / max(1, len(labels)), "apart": sum(apart) / max(1, len(apart))}


def _label(example: Any) -> int | None:
    """Return the last part of an example where it is a whole number."""
    if not isinstance(example, (tuple, list)) or len(example) < 2:
        return None
    last = example[-1]
    whole = isinstance(last, int) or (getattr(last, "ndim", 1) == 0 and "int" in str(getattr(last, "dtype", "")))
    return int(last) if whole else None


class _One(torch.utils.data.Dataset[Any]):
    """Give one example of another data set, again and again."""

    def __init__(self, dataset: Any, length: int) -> None:
        self.dataset, self.length = dataset, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> Any:
        return self.dataset[0]


def _alike(dataset: Any, way: dict[str, Any], workers: int) -> float:
    """Let two workers read one example several times; return the share of readings at which both got the same."""
    loader: Any = torch.utils.data.DataLoader(
        _One(dataset, 2 * _DRAWS),
        batch_size=1,
        num_workers=2,
        collate_fn=_first,
        worker_init_fn=way.get("worker_init_fn"),
        timeout=_LONGEST,
        multiprocessing_context="fork",
        generator=torch.Generator().manual_seed(1),
    )
    read = list(loader)  # in turn from the one and from the other
    return sum(_same(one, other) for one, other in zip(read[::2], read[1::2], strict=False)) / _DRAWS


def _first(examples: list[Any]) -> Any:
    return examples[0]
