"""What a step holds in memory, how that goes with the rows, which cheaper fix would save how much, and the largest batch that fits.

A captured step is done with two numbers of rows, storage by storage; the rest is arithmetic. Where a limit is given, the
largest batch is found by real attempts under it.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import nn

from lossdoctor.experiments.replay import Deadline, Replay
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.machine.largest import largest, limited, private_bytes, ran_out
from lossdoctor.machine.memory import Growth, Held, follow

MOST_MODULES = 10


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the budget of a step.

    Args:
        parameters: as for `rate`; with `limit_bytes` the largest batch that fits is tried, not only predicted.

    Returns:
        `rows`, `weights`, `gradients`, `optimizer_state` (bytes), `peak` (bytes that a step holds beside weights and state),
        `peak_by_row`, `saved` (bytes for backward by module, the largest ten), `fixes` (bytes that each would save),
        `available` (bytes), `largest_predicted` and `largest` (rows; the second only where it was tried).
    """
    batch, models = replay.batches[0], replay.start()
    rows = batch.rows
    moved = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    weights = sum(_size(each) for model in models for each in (*model.parameters(), *model.buffers()))
    gradients = sum(_size(parameter) for parameter in moved)
    whole, half = _held(replay, models, rows), _held(replay, models, max(1, rows // 2))
    growth = Growth.through((max(1, rows // 2), half), (rows, whole)) if rows > 1 else None
    state = _state_bytes(replay, models, parameters)
    facts: dict[str, Any] = {"rows": rows, "weights": weights, "gradients": gradients, "optimizer_state": state, "peak": whole.peak}
    facts |= {"saved": whole.saved.most_common(MOST_MODULES), "fixes": fixes(whole, models, gradients, state), "available": _available()}
    if growth is not None:
        facts |= {
            "peak_by_row": float(growth.slope.max(initial=0.0)),
            "largest_predicted": growth.most(facts["available"] - weights - state),
        }
        if parameters.get("limit_bytes"):
            facts["largest"] = _tried(replay, models, growth, int(parameters["limit_bytes"]))
    return facts


def fixes(held: Held, models: list[nn.Module], gradients: int, state: int) -> dict[str, int]:
    """Return the bytes that each of the cheaper fixes would save, computed.

    Checkpointing each child of the model keeps what enters the children and the largest child's own; half precision halves what
    backward needs; accumulation over two micro-batches halves it too; 8-bit state takes a quarter of two float32 moments.
    """
    saved = sum(held.saved.values())
    by_child: dict[str, int] = {}
    for name, size in held.saved.items():
        by_child[name.split(".")[0]] = by_child.get(name.split(".")[0], 0) + size
    largest_child = max(by_child.values(), default=0)
    return {
        "half precision in the model": saved // 2,
        "two micro-batches, accumulated": saved // 2,
        "checkpointing each block": max(0, saved - largest_child - saved // max(2, len(by_child))),
        "8-bit optimiser state": state - state // 4,
        "training a few per cent as adapters": int(0.97 * (gradients + state)),
    }


def _held(replay: Replay, models: list[nn.Module], rows: int) -> Held:
    batch = replay.batches[0]
    constants = replay.constants(batch, torch.arange(rows))
    for model in models:
        model.zero_grad()

    def step() -> None:
        replay.loss_of(models, batch, constants, rows).backward()  # type: ignore[no-untyped-call]

    return follow(models, step)


def _state_bytes(replay: Replay, models: list[nn.Module], parameters: dict[str, Any]) -> int:
    optimizer = optimizer_for(models, parameters, 0.0)
    optimizer.step()
    state = sum(_size(value) for each in optimizer.state.values() for value in each.values() if isinstance(value, torch.Tensor))
    return int(state)


def _tried(replay: Replay, models: list[nn.Module], growth: Growth, limit: int) -> int:
    """Return the largest batch whose step fits into the process under a limit."""
    batch = replay.batches[0]

    def fits(rows: int) -> bool:
        try:
            for model in models:
                model.zero_grad()
            index = torch.arange(rows) % batch.rows
            replay.loss_of(models, batch, replay.constants(batch, index), rows).backward()  # type: ignore[no-untyped-call]
            return True
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            return False
        finally:
            gc.collect()

    gc.collect()
    with limited(limit):
        return largest(fits, growth.most(limit - private_bytes()))


def _available() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    import psutil

    return int(psutil.virtual_memory().available)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
