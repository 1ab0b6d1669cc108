"""Batches in another order at each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from lossdoctor.core.fault import Treatment
from lossdoctor.trials.hooks import Hooks

USUAL = Treatment("shuffle", {}, moves="loss", direction="down", safety="changes-results")


def apply(hooks: Hooks, seed: int = 0) -> None:
    """Draw the rows of loaders at random that give them in their order, wherever gradients are on; random numbers stay as they are.

    Args:
        seed: of the order.
    """
    generator = torch.Generator().manual_seed(seed)

    def make(original: Any) -> Any:
        def __iter__(self: Any) -> Iterator[list[int]]:  # noqa: N807
            sampler = self.sampler
            if type(sampler) is not SequentialSampler or not torch.is_grad_enabled() or not len(sampler):
                return original(self)  # type: ignore[no-any-return]
            hooks.note("shuffle")
            shuffled = BatchSampler(RandomSampler(sampler.data_source, generator=generator), self.batch_size, self.drop_last)
            return original(shuffled)  # type: ignore[no-any-return]

        return __iter__

    hooks.wrap(BatchSampler, "__iter__", make)
