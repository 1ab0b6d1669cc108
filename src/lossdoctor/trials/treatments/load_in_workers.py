"""Batches prepared ahead by processes of their own."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks, workers: int, prefetch: int = 2) -> None:
    """Give loaders workers where they have fewer; they live as long as the loader.

    Args:
        workers: of each loader.
        prefetch: batches that each prepares ahead.
    """

    def make(original: Any) -> Any:
        def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            # By position they stand sixth; an iterable data set would give its rows once for each worker.
            if len(args) < 5 and not isinstance(dataset, IterableDataset) and kwargs.get("num_workers", 0) < workers:
                hooks.note("load_in_workers")
                kwargs |= {"num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": True}
            original(self, dataset, *args, **kwargs)

        return __init__

    hooks.wrap(DataLoader, "__init__", make)
