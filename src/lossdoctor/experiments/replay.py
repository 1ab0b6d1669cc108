"""Do captured steps again, on a deep copy of the model, without touching the user's objects or random state."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.record.capture import Batch, Captures, counts_rows, row_constants

# Which whole numbers of a program are sizes of the batch: none, those that are as large, those that are several times as large as well.
NO_SIZES, SAME_SIZE, MULTIPLES = range(3)


class ReplayRefused(Exception):
    """Say why a run cannot be replayed, for the user."""


class TimeOver(ReplayRefused):
    """Say that an experiment was ended where it was."""


class WorkClock:
    """Tell seconds of work: this thread's processor time, or of the time that passes a share, where that is more.

    On a busy machine an experiment so does as much as on an idle one and takes longer, up to `patience` times; one that waits for a
    device, a disk or another process ends after `patience` times its seconds.

    Args:
        patience: how many seconds without work count as one; with 1 it is a wall clock.

    Example:
        >>> clock = WorkClock(3.0)
        >>> clock() <= clock()
        True
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._seconds, self._wall, self._cpu = 0.0, time.monotonic(), time.thread_time()

    def __call__(self) -> float:
        """Return the seconds so far."""
        wall, cpu = time.monotonic(), time.thread_time()
        self._seconds += max(cpu - self._cpu, (wall - self._wall) / self.patience)
        self._wall, self._cpu = wall, cpu
        return self._seconds


@dataclass
class Deadline:
    """Hold until when an experiment may go on, by a clock of its own.

    Example:
        >>> Deadline.after(10.0).over
        False
    """

    at: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """A deadline so many seconds from now."""
        return cls(clock() + seconds, clock)

    def within(self, seconds: float) -> Deadline:
        """One so many seconds from now, and no later than this one."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)

    @property
    def half(self) -> Deadline:
        """One half way from now, for the first of two that take turns."""
        return self.within(self.left / 2)

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self.at - self.clock())

    @property
    def over(self) -> bool:
        """Tell whether it has passed."""
        return self.clock() >= self.at


class Replay:
    """Give copies of the model at its start, and the loss of captured batches on them.

    Args:
        captures: what was kept of the run.
        of_model: whether the model itself will be run; without it only the rows are used, and no loss need come out again.

    Raises:
        ReplayRefused: nothing was captured, the model cannot be copied, or the captured loss does not come out again.
    """

    def __init__(self, captures: Captures, *, of_model: bool = True) -> None:
        if not captures.batches:
            raise ReplayRefused(captures.refused or "no training step was captured")
        self.captures = captures
        self._layout: tuple[int, bool] | None = None  # how a batch is cut: which sizes are mapped, flattened rows are known
        first = captures.batches[0].modules
        # Batches of another model belong to another training (a later fold, the other half of a pair).
        self.batches = [batch for batch in captures.batches if batch.modules == first]
        if not of_model:
            return
        if any(captures.initial[number] is None for number in first):
            raise ReplayRefused("the weights from before the first step are too large to keep")
        self._check()

    def _check(self) -> None:
        """Refuse where the first captured loss does not come out again (within the spread of two replays where the model draws)."""
        batch = self.batches[0]
        values = []
        for _ in range(2):
            torch.set_rng_state(batch.random)
            with torch.no_grad():
                values.append(float(self.loss(self.start(), batch)))
        expected = float(batch.value)
        spread = abs(values[0] - values[1]) + 1e-4 * abs(expected) + 1e-6  # float32 sums in another order
        if not abs(values[0] - expected) <= spread and not (expected != expected and values[0] != values[0]):
            raise ReplayRefused(f"the captured loss {expected:.6g} comes out as {values[0]:.6g}")

    def start(self, seed: int | None = None) -> list[nn.Module]:
        """Return copies of the models with the weights from before the first step, or freshly initialised with a seed."""
        models = []
        for number in self.batches[0].modules:
            model = self._copy(self.captures.models[number])
            _load(model, self.captures.initial[number] or {})
            for name, part in model.named_modules():
                part.training = self.captures.training[number].get(name, part.training)
            models.append(model)
        if seed is not None:
            torch.manual_seed(seed)
            for model in models:
                reinitialise(model)
        return models

    def now(self) -> list[nn.Module]:
        """Return copies of the models as they are: with the weights that they were trained to."""
        return [self._copy(self.captures.models[number]) for number in self.batches[0].modules]

    def _copy(self, original: nn.Module) -> nn.Module:
        try:
            return copy.deepcopy(original)
        except Exception as error:
            raise ReplayRefused(f"the model cannot be copied: {type(error).__name__}: {error}") from error

    def loss(
        self, models: list[nn.Module], batch: Batch, rows: Tensor | None = None, change: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the loss of a captured batch.

        Args:
            rows: indices of the rows to use; all where left out.
            change: applied to each floating input of the first model call.
        """
        return self.loss_of(models, batch, self.constants(batch, rows, change), None if rows is None else len(rows))

    def constants(self, batch: Batch, rows: Tensor | None = None, change: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
        """Return a batch's constants, cut to some rows and with its inputs changed."""
        from lossdoctor.record.capture import inputs

        if rows is not None and len(rows) != batch.rows and self._layout is None:
            self._layout = (NO_SIZES, False)
            self._layout = self._find_layout()
        chosen = list(batch.program.constants)
        if change is not None:
            mine = {id(tensor) for tensor in inputs(batch)}
            chosen = [change(tensor) if id(tensor) in mine and tensor.is_floating_point() else tensor for tensor in chosen]
        if rows is not None:
            flat = self._layout is not None and self._layout[1]
            entries_of = {**(_flattened(batch) if flat else {}), **row_constants(batch.program, batch.rows)}
            for number, entries in entries_of.items():
                cut = rows if entries == 1 else (rows[:, None] * entries + torch.arange(entries)).flatten()
                # The numbers of the rows, by which a loss written by hand picks entries, are those of fewer rows.
                counted = counts_rows(chosen[number])
                chosen[number] = torch.arange(len(cut), dtype=chosen[number].dtype) if counted else chosen[number][cut]
        return chosen

    def loss_of(self, models: list[nn.Module], batch: Batch, constants: list[Tensor], rows: int | None = None) -> Tensor:
        """Run a batch's program on given constants, with sizes that the script computed from the batch mapped."""
        device = next((parameter.device for model in models for parameter in model.parameters()), torch.device("cpu"))
        moved = [tensor.to(device) for tensor in constants]
        whole = rows is None or rows == batch.rows
        value = batch.program.run(models, moved) if whole else self._cut(batch, models, moved, rows or 0)
        return value if value.dim() == 0 else value.sum()  # type: ignore[no-any-return]

    def _cut(self, batch: Batch, models: list[nn.Module], constants: list[Tensor], rows: int) -> Any:
        sizes = self._layout[0] if self._layout is not None else NO_SIZES

        def resize(size: int) -> int:
            mapped = size == batch.rows or (sizes == MULTIPLES and size >= batch.rows and size % batch.rows == 0)
            return size // batch.rows * rows if mapped else size

        return batch.program.run(models, constants, resize if sizes else None)

    def _find_layout(self) -> tuple[int, bool]:
        """Find out how a batch is cut: the mean over its halves is that of the whole; of a single row, that of several like it.

        Whole numbers in the program may be sizes of the batch, or several times as large, or neither; and constants that are several
        times as long as it may be its rows, flattened in a way that no other constant shows.
        """
        batch = next((batch for batch in self.batches if batch.rows > 1), self.batches[0])
        models = [model.eval() for model in self.start()]
        half = batch.rows // 2
        parts = [torch.arange(half), torch.arange(half, batch.rows)] if half else [torch.zeros(2, dtype=torch.long)]
        with torch.no_grad():
            whole = float(self.loss_of(models, batch, self.constants(batch)))
            layouts = [(sizes, flat) for flat in (False, True) for sizes in (NO_SIZES, SAME_SIZE, MULTIPLES)]
            gaps = [self._gap(models, batch, whole, layout, parts) for layout in layouts]
        best = min(range(len(layouts)), key=gaps.__getitem__)
        return layouts[best] if gaps[best] < 0.5 * gaps[0] else layouts[0]  # equal gaps: nothing was resized

    def _gap(self, models: list[nn.Module], batch: Batch, whole: float, layout: tuple[int, bool], parts: list[Tensor]) -> float:
        """Return by how much the mean over parts differs from the whole where a batch is cut in this way."""
        self._layout = layout
        try:
            values = [float(self.loss_of(models, batch, self.constants(batch, part), len(part))) * len(part) for part in parts]
        except (RuntimeError, IndexError, ValueError):  # shapes do not meet
            return float("inf")
        return abs(sum(values) / sum(len(part) for part in parts) - whole)


def _flattened(batch: Batch) -> dict[int, int]:
    """Return which constants may be rows of the batch that were flattened: number to entries per row."""
    lengths = {number: int(tensor.shape[0]) for number, tensor in enumerate(batch.program.constants) if tensor.dim()}
    return {number: length // batch.rows for number, length in lengths.items() if length > batch.rows and length % batch.rows == 0}


def _load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name in state and state[name].shape == tensor.shape:
                tensor.copy_(state[name])
            tensor.grad = None


def reinitialise(model: nn.Module) -> bool:
    """Give every layer that knows how the start that its class gives it; tell whether any did."""
    done = False
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
            done = True
        elif isinstance(part, nn.MultiheadAttention):
            part._reset_parameters()
            done = True
    return done


@contextmanager
def untouched() -> Iterator[None]:
    """Restore random states, grad mode and thread count afterwards, also on an error."""
    import random

    import numpy as np

    states = torch.get_rng_state(), random.getstate(), np.random.get_state(), torch.is_grad_enabled()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        torch.set_grad_enabled(True)
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
        torch.set_grad_enabled(states[3])
        if devices:
            torch.cuda.set_rng_state_all(devices)


@contextmanager
def without_dropout(models: list[nn.Module]) -> Iterator[None]:
    """Let dropout pass everything through, whether it is a layer or a function; batch norm keeps batch statistics."""
    names = [name for name in dir(torch.nn.functional) if name.endswith("dropout") or name.rstrip("123d").endswith("dropout")]
    before = {name: getattr(torch.nn.functional, name) for name in names}
    for model in models:
        for part in model.modules():
            if isinstance(part, (nn.RNNBase, nn.MultiheadAttention)):
                part.dropout = 0.0
    for name in names:
        setattr(torch.nn.functional, name, lambda value, *args, **kwargs: value)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.nn.functional, name, function)


def described(replay: Replay, models: list[nn.Module], batch: Batch, constants: list[Tensor]) -> dict[str, Any] | None:
    """Return what the last known loss call of a batch's program shows (the fields of the signal `loss_call`), or None."""
    from lossdoctor.record.probes.loss_call import describe_loss_call

    calls: list[tuple[str, Any, Any, Any]] = []
    known = {"cross_entropy", "kl_div"}

    def watch(name: str, args: Any, kwargs: Any, result: Any) -> None:
        if name in known or name.endswith(("_loss", "_logits", "_entropy")):
            calls.append((name, args, kwargs, result))

    with torch.no_grad():
        batch.program.run(models, constants, watch=watch)
    return describe_loss_call(*calls[-1]) if calls else None
