"""Facts about a model, a data loader, an optimiser, as plain values."""

from __future__ import annotations

import weakref
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

_MOST_LAYERS = 200


def model_fact(module: nn.Module) -> dict[str, Any]:
    """Describe a model: class name, its layers (those that hold no others), number of parameters.

    Example:
        >>> model_fact(nn.Linear(2, 1))["layers"]
        [{'name': '', 'kind': 'Linear', 'shape': [1, 2]}]
    """
    layers: list[dict[str, Any]] = []
    for name, part in module.named_modules():
        if next(part.children(), None) is None and len(layers) < _MOST_LAYERS:
            weight = getattr(part, "weight", None)
            layers.append({"name": name, "kind": type(part).__name__, "shape": _shape(weight)})
    counted = [parameter for parameter in module.parameters() if _shape(parameter) is not None]
    return {
        "name": type(module).__name__,
        "layers": layers,
        "parameters": sum(parameter.numel() for parameter in counted),
        "trainable": sum(parameter.numel() for parameter in counted if parameter.requires_grad),
    }


def _shape(tensor: Any) -> list[int] | None:
    if tensor is None or isinstance(tensor, UninitializedTensorMixin) or not hasattr(tensor, "shape"):
        return None
    return [int(size) for size in tensor.shape]


def loader_fact(iterator: Any) -> dict[str, Any]:
    """Describe the settings of a data loader by its iterator."""
    batches = getattr(iterator, "_index_sampler", None)
    sampler = getattr(batches, "sampler", batches)
    dataset = getattr(iterator, "_dataset", None)
    return {
        "workers": getattr(iterator, "_num_workers", None),
        "batch_size": getattr(batches, "batch_size", None),
        "shuffle": "Random" in type(sampler).__name__,
        "sampler": type(sampler).__name__,
        "drop_last": getattr(batches, "drop_last", None),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "rows": _length(dataset),
        "of": _length(getattr(dataset, "dataset", None)) if hasattr(dataset, "indices") else None,
    }


def way_to_data(iterator: Any) -> dict[str, Any]:
    """Return how a loader's iterator reads its data set: the data set behind a weak reference, and what starts its workers."""
    dataset = getattr(iterator, "_dataset", None)
    try:
        reference: Any = weakref.ref(dataset)
    except TypeError:  # a list
        reference = lambda: dataset  # noqa: E731
    return {"dataset": reference, "worker_init_fn": getattr(iterator, "_worker_init_fn", None)}


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # an iterable data set has no length, a script's own may raise anything
        return None


def settings(optimizer: Any) -> dict[str, Any]:
    """Describe an optimiser: class name, and the settings of its groups."""
    groups = [
        {name: simple(value) for name, value in group.items() if name not in ("params", "param_names")}
        | {"parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
    return {"name": type(optimizer).__name__, "groups": groups}


def simple(value: Any) -> Any:
    """Return a setting as what JSON can hold; what it cannot as its text."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (tuple, list)):
        return [simple(item) for item in value]
    return str(value)
