"""Keep what a replay needs: the weights before the first step, and the first batches with the program that leads to their loss.

Bounded: 64 MB of batches and 500 MB of weights, on the CPU. The first steps are kept until there are a thousand rows,
then ever fewer, so that data that arrive sorted are seen as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lossdoctor.record.program import Program, Tracer, tensors

ROWS = 1000  # below about 250 rows a baseline's answer is "unknown"; a thousand separated all conditions (field guide)
MOST_ROWS = 4000
BATCH_BYTES = 64 << 20
WEIGHT_BYTES = 500 << 20
MOST_PASSES = 3  # validation passes whose inputs are kept: two show whether their data change, of one more the first may be a trial
PASS_ROWS, PASS_BYTES = 500, 8 << 20  # of one pass


@dataclass
class Batch:
    """Hold one captured training step.

    Args:
        program: what led from the batch to the loss.
        modules: numbers of the models that it calls, in `Captures.models`.
        rows: first dimension of the first model's first tensor.
        value: the loss that backward was called on; None where it cannot be read without waiting for a device.
        random: the CPU random state before the forward.
        step: how many backward calls came before.
    """

    program: Program
    modules: list[int]
    rows: int
    value: Tensor
    random: Tensor
    step: int


@dataclass
class Captures:
    """Hold everything that was captured of a run, for replays in the same process.

    Args:
        models: the models that the batches call.
        initial: their weights and buffers before the first step, or None where they are too large.
        training: whether each model was in training mode.
        passes: of the first validation passes, the inputs of their forwards.
        wanted: of the same passes, the targets that outputs met.
        loader: how the training's data loader came to its data set, `dataset` as a function that returns it or None; None without a loader.
    """

    models: list[torch.nn.Module] = field(default_factory=list)
    initial: list[dict[str, Tensor] | None] = field(default_factory=list)
    training: list[dict[str, bool]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    passes: list[list[Tensor]] = field(default_factory=list)
    wanted: list[list[Tensor]] = field(default_factory=list)
    loader: dict[str, Any] | None = None
    refused: str = ""

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(batch.rows for batch in self.batches)


class Capture:
    """Fill `Captures` from what the seams see.

    Args:
        batch_bytes: bound on the batches.
        weight_bytes: bound on the weights of all models.
    """

    def __init__(self, batch_bytes: int = BATCH_BYTES, weight_bytes: int = WEIGHT_BYTES) -> None:
        self.held = Captures()
        self.wanted = True
        self._left = batch_bytes
        self._weight_bytes = weight_bytes
        self.watch_backward: Callable[[bool], None] = lambda on: None  # has `pause` called before any `Tensor.backward`
        self._tracer: Tracer | None = None
        self._random: Tensor | None = None
        self._failures = 0
        self.backwards = 0
        self._next = 0

    @property
    def quiet(self) -> int:
        """How many backward calls there are before the next step is captured."""
        return 0 if self._tracer is not None else self._next - self.backwards

    def forward_began(self, training: bool, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Before an outermost forward; one that is not of training ends the step under way without a backward."""
        if not training:
            self.drop()
            return
        if self._tracer is None and self.backwards < self._next:
            return
        with self._guarded():
            if self._tracer is None:
                self._random = torch.get_rng_state()
                self._tracer = Tracer(self._left)
                self.watch_backward(True)
            self._know(module)
            self._tracer.module_began(module, args, kwargs)

    def forward_ended(self, result: Any) -> None:
        """After an outermost training forward."""
        if self._tracer is None:
            return
        with self._guarded():
            self._tracer.module_ended(result)

    def validates(self, first: bool, values: Iterable[Any]) -> None:
        """Keep what enters a forward of a validation pass, of the first passes and their first rows."""
        passes = self.held.passes
        if first and len(passes) <= MOST_PASSES:
            passes.append([])
        if not passes or len(passes) > MOST_PASSES:
            return
        given = next((value for value in values if isinstance(value, Tensor) and value.dim()), None)
        left = PASS_ROWS - sum(len(tensor) for tensor in passes[-1])
        if given is None or left <= 0 or given[:left].numel() * given.element_size() > PASS_BYTES * len(given[:left]) / PASS_ROWS:
            return
        passes[-1].append(given[:left].detach().to("cpu", copy=True))

    def met(self, targets: Iterable[Tensor]) -> None:
        """Keep the targets of a validation pass that was kept, at its end."""
        if len(self.held.wanted) >= len(self.held.passes):
            return
        kept: list[Tensor] = []
        for target in targets:
            left = PASS_ROWS - sum(len(each) for each in kept)
            if left > 0 and target.dim() and target[:1].numel() <= 1:
                kept.append(target[:left].detach().to("cpu", copy=True))
        self.held.wanted += [[] for _ in range(len(self.held.passes) - len(self.held.wanted) - 1)]
        self.held.wanted.append(kept)

    def stop(self) -> None:
        """Capture nothing more."""
        self.drop()
        self.wanted = False

    def pause(self) -> None:
        """Stop watching functions; the step goes on."""
        if self._tracer is not None:
            self._tracer.pause()

    def drop(self) -> None:
        """Forget the step under way: its forward raised, or belongs to no training step."""
        self.pause()
        self._tracer = None
        self.watch_backward(False)

    def backward_began(self, loss: Any) -> None:
        """Before backward: the program of the step ends here."""
        self.backwards += 1
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        tracer.pause()
        self.watch_backward(False)
        with self._guarded():
            program = tracer.finish(loss) if isinstance(loss, Tensor) else None
            if program is not None:
                self._keep(tracer, program, loss)
                return
            self._failures += 1
            self.held.refused = (
                "the way from the model to the loss leaves torch's functions, uses parameters outside a module, or is too large"
            )
            self.wanted = self._failures < 3 or bool(self.held.batches)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Capture nothing more after an error of ours."""
        try:
            yield
        except Exception as error:
            self.stop()
            self.held.refused = f"capturing failed: {type(error).__name__}: {error}"

    def _keep(self, tracer: Tracer, program: Program, loss: Tensor) -> None:
        assert self._random is not None
        rows = next((int(tensor.shape[0]) for tensor in program.constants if tensor.dim()), 1)
        numbers = [self._number(module) for module in tracer.modules]
        self.held.batches.append(Batch(program, numbers, rows, loss.detach().clone(), self._random, self.backwards - 1))
        self._left -= tracer.bytes
        held = self.held.rows
        if held >= ROWS:  # from now on every second, fourth, ... step
            self._next = self.backwards * 2
        self.wanted = held < MOST_ROWS and self._left > 2 * tracer.bytes

    def _know(self, module: torch.nn.Module) -> None:
        """Copy the weights of a model that is seen for the first time: it has not been stepped yet."""
        if self._number(module) >= 0:
            return
        state = _state(module)
        size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        fits = size <= self._weight_bytes
        self._weight_bytes -= size if fits else 0
        self.held.models.append(module)
        self.held.initial.append({name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()} if fits else None)
        self.held.training.append({name: part.training for name, part in module.named_modules()})

    def _number(self, module: torch.nn.Module) -> int:
        return next((index for index, known in enumerate(self.held.models) if known is module), -1)


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, those that `state_dict` leaves out as well."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def row_constants(program: Program, rows: int) -> dict[int, int]:
    """Return which constants go by the rows of the batch: number to entries per row.

    One entry, or as many as a row has positions where targets of a sequence were flattened before the loss.
    """
    single = {number: 1 for number, tensor in enumerate(program.constants) if tensor.dim() and tensor.shape[0] == rows}
    positions = {size for number in single for size in program.constants[number].shape[1:]}
    flat = {
        number: tensor.shape[0] // rows
        for number, tensor in enumerate(program.constants)
        if tensor.dim() and rows and tensor.shape[0] > rows and tensor.shape[0] % rows == 0 and tensor.shape[0] // rows in positions
    }
    return {**single, **flat}


def counts_rows(tensor: Tensor) -> bool:
    """Tell whether a tensor is the numbers of the rows, by which a loss written by hand picks the entries of its targets.

    Example:
        >>> counts_rows(torch.arange(4)), counts_rows(torch.tensor([0, 2, 1, 3]))
        (True, False)
    """
    if tensor.dtype == torch.bool or len(tensor) < 2 or tensor.numel() != len(tensor):
        return False
    return bool((tensor.flatten() == torch.arange(len(tensor), device=tensor.device)).all())


def inputs(batch: Batch) -> Sequence[Tensor]:
    """Return the tensors that the first model call of a batch was given."""
    from lossdoctor.record.program import Constant, replace

    found: list[Tensor] = []

    def leaf(item: Any) -> Any:
        if isinstance(item, Constant):
            found.append(batch.program.constants[item.number])
        return item

    first = batch.program.instructions[0]
    replace(first.args, leaf)
    replace(dict(first.kwargs), leaf)
    return found


__all__ = ["Batch", "Capture", "Captures", "counts_rows", "inputs", "row_constants", "tensors"]
