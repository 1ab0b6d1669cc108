"""End a checked script when enough was seen of it: so many steps, and a validation pass, which comes soon since epochs are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.utils.data.dataloader as loaders
from torch.optim.optimizer import register_optimizer_step_post_hook

from lossdoctor.launch import alarm, script

EMPTY = "a data loader gave no batch: its data set is empty, or smaller than a batch with drop_last"


def apply(treatments: Sequence[Mapping[str, Any]], finish: Callable[[], object]) -> None:
    """Apply the one treatment there is, as `trials.treatments.apply` does with its own.

    Args:
        treatments: one, with `parameters`: `steps` to see, `batches` of an epoch until a validation pass was seen.
        finish: ends the process.
    """
    for treatment in treatments:
        end_after(finish, treatment["parameters"]["steps"])
        cut_epochs(treatment["parameters"]["batches"])


def validated() -> bool:
    """Tell whether a validation pass was seen to its end."""
    return script.recorder is not None and script.recorder.passes > 0


def end_after(finish: Callable[[], object], steps: int) -> None:
    """End the process after a step: once there were so many and a validation pass, or once its time is over."""
    taken = [0]

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        taken[0] += 1
        if alarm.over() or (taken[0] >= steps and validated()):
            finish()

    register_optimizer_step_post_hook(after)


def cut_epochs(batches: int) -> None:
    """Let every loader's epoch end after so many batches, until a validation pass was seen."""
    for kind in (loaders._SingleProcessDataLoaderIter, loaders._MultiProcessingDataLoaderIter):
        _cut(kind, batches)


def _cut(kind: Any, batches: int) -> None:
    original = kind._next_data

    def next_data(self: Any) -> Any:
        if self._num_yielded >= batches and not validated():
            raise StopIteration
        try:
            return original(self)
        except StopIteration:
            if self._num_yielded == 0 and EMPTY not in script.notes:
                script.notes.append(EMPTY)
            raise

    kind._next_data = next_data
