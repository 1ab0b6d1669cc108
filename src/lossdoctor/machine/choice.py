"""Which levers apply to a run, and which of those that pay go together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lossdoctor.core.run import Training

LARGER = 4  # times the batch
_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad")


@dataclass(frozen=True)
class Lever:
    """Hold one lever.

    Args:
        title: for the reader.
        treatment: name and parameters, as `machine.levers` knows them.
        group: of those in one group only one can be pulled.
        advice: what to write in the script.
        ceiling: whether it only shows what is possible, and is nothing to do.
        changes: whether it changes results by intent.
        parts: of a step's time (`derive.parts`) that it can shorten; all where empty.
        asked: whether it is tried only where it is asked for: it takes minutes.
    """

    title: str
    treatment: Mapping[str, Any]
    group: str
    advice: str
    ceiling: bool = False
    changes: bool = False
    parts: tuple[str, ...] = ()
    asked: bool = False

    def bound(self, shares: Mapping[str, float]) -> float:
        """Return how many times as fast it could make a step at most (Amdahl's law).

        Example:
            >>> Lever("", {}, "", "", parts=("waiting",)).bound({"waiting": 0.5, "forward": 0.5})
            2.0
        """
        share = sum(shares.get(part, 0.0) for part in self.parts)
        return 1.0 / max(1.0 - share, 1e-3) if self.parts else math.inf


_WAITING, _MODEL, _OPTIMISER = ("waiting",), ("forward", "loss", "backward"), ("optimiser",)
_COMPUTE = (*_MODEL, *_OPTIMISER)


@dataclass
class Tried:
    """Hold what was measured of a lever.

    Args:
        lever: the lever.
        factors: how many times as many rows per second as the control, of each pair.
        losses: `same`, `follow` or `differ`.
        refused: why it does not apply, or what ended it.
    """

    lever: Lever
    factors: list[float] = field(default_factory=list)
    losses: str = ""
    refused: str = ""


def levers(training: Training, cores: int) -> list[Lever]:
    """Return the levers that may apply to a run.

    Args:
        training: of the control, with its facts.
        cores: that this process may use.
    """
    loader, name = training.fact("loader") or {}, (training.fact("optimizer") or {}).get("name", "")
    kinds = {layer.get("kind") for layer in (training.fact("model") or {}).get("layers", [])}
    found = [*_of_loader(loader, name, cores), *_of_threads(training.fact("threads"), cores)]
    half = _treatment("autocast", dtype="bfloat16")
    advice = "with torch.autocast(device, dtype=torch.bfloat16) around the model and the loss"
    found.append(Lever("bfloat16 where it is safe", half, "precision", advice, changes=True, parts=_MODEL))
    if "Conv2d" in kinds:
        advice = "model.to(memory_format=torch.channels_last), and the images alike"
        found.append(Lever("channels last", _treatment("channels_last"), "layout", advice, parts=_MODEL))
    found += _of_optimiser(name)
    return [*found, Lever("compiled model", _treatment("compiled"), "compiled", "model.compile()", parts=_MODEL, asked=True)]


def _of_loader(loader: Mapping[str, Any], optimizer: str, cores: int) -> list[Lever]:
    if not loader:
        return []
    advice = "slice whole batches from the tensors, or give the data set __getitems__"
    found = [Lever("whole batches", _treatment("whole_batches"), "fetching", advice, parts=_WAITING)]
    if not loader.get("workers"):
        count = max(1, min(cores, 8))
        advice = f"DataLoader(..., num_workers={count}, persistent_workers=True, prefetch_factor=4)"
        found.append(Lever(f"{count} loader workers", _treatment("workers", count=count), "workers", advice, parts=_WAITING))
    found.append(Lever("data without loading (the ceiling)", _treatment("cached"), "ceiling", "", ceiling=True, parts=_WAITING))
    if loader.get("batch_size") and loader.get("shuffle"):
        rate = math.sqrt(LARGER) if optimizer in _ADAPTIVE else float(LARGER)
        advice = f"batch_size={LARGER * int(loader['batch_size'])}, and the rate times {rate:g}"
        found.append(
            Lever(f"batches {LARGER} times as large", _treatment("batch", factor=LARGER, rate=rate), "batch", advice, changes=True)
        )
    return found


def _of_threads(own: Any, cores: int) -> list[Lever]:
    counts = sorted({1, cores} - {own}) if isinstance(own, int) else []
    titles = {count: f"{count} thread{'s' if count > 1 else ''} instead of {own}" for count in counts}
    return [Lever(titles[n], _treatment("threads", count=n), "threads", f"torch.set_num_threads({n})", parts=_COMPUTE) for n in counts]


def _of_optimiser(name: str) -> list[Lever]:
    kinds = ("fused",) if name in ("Adam", "AdamW", "SGD", "Adagrad") else ("foreach",)
    treatments = {kind: _treatment("optimiser_kernel", kind=kind) for kind in kinds}
    call = f"torch.optim.{name or 'Optimizer'}"
    return [Lever(f"{kind} optimiser", treatments[kind], "optimiser", f"{call}(..., {kind}=True)", parts=_OPTIMISER) for kind in kinds]


def _treatment(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


def together(paying: Sequence[tuple[Lever, float]]) -> list[Lever]:
    """Return the levers to pull together: of each group the best; workers have nothing to do where batches come whole.

    Args:
        paying: levers that pay, with their factors.

    Example:
        >>> one, two = (Lever(title, {}, "fetching", "") for title in ("slow", "quick"))
        >>> [lever.title for lever in together([(one, 1.5), (two, 2.0)])]
        ['quick']
    """
    best: dict[str, tuple[Lever, float]] = {}
    for lever, factor in paying:
        group = "fetching" if lever.group == "workers" else lever.group
        if not lever.ceiling and factor > best.get(group, (lever, 0.0))[1]:
            best[group] = (lever, factor)
    return [lever for lever, _ in best.values()]
