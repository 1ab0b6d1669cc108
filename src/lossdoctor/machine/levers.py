"""Levers of speed, pulled on an unchanged script in a child: the batches it gets, its precision, its optimiser's kernels, its threads.

Interpreted in the child's process, like `trials.treatments` (`launch.child.repeat` names the module). A lever that finds that
it does not apply says so as the fact `lever` of the run.
"""

from __future__ import annotations

import atexit
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, IterableDataset, dataloader

from lossdoctor.launch import script
from lossdoctor.machine.whole import use_whole_batches
from lossdoctor.record.probes.thread import thread_times

KEPT_BATCHES = 16  # of each data set, for the ceiling


def apply(treatments: Sequence[Mapping[str, Any]], finish: Callable[[], object]) -> None:
    """Pull levers in this process, in order; the one that stops it comes last.

    Raises:
        KeyError: where a name is not known.
    """
    if script.recorder is not None:
        script.recorder.record_little()
    for treatment in treatments:
        parameters = dict(treatment.get("parameters", {}))
        if treatment["name"] == "stop":
            stop(finish, **parameters)
        else:
            LEVERS[treatment["name"]](**parameters)


def tell(name: str, value: Any) -> None:
    """Write a fact of the run."""
    if script.recorder is not None:
        script.recorder.add({"kind": "fact", "track": None, "name": name, "value": value})


def stop(finish: Callable[[], object], steps: int | None = None, seconds: float | None = None, look: bool = False) -> None:
    """End the process after so many steps of all optimisers, or after so many seconds of them beyond the first steps.

    Args:
        look: find out meanwhile which lines the time goes to, and where the script waits for values of the device.
    """
    from lossdoctor.machine.looking import Look

    looking = Look() if look else None
    stepped = Stopwatch(steps, seconds)
    queued: list[float] = []

    def told() -> None:
        if queued:
            tell("queued", [round(each, 6) for each in queued if each == each])
            queued.clear()
            if looking is not None:
                looking.tell(tell)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        queued.append(thread_times()[1])
        if looking is not None:
            looking.step_ended()
        if stepped.over():
            told()
            finish()

    register_optimizer_step_post_hook(after)
    atexit.register(told)  # where the script ends before


WARM = 5  # steps in which caches fill
LEAST = 10  # steps that are timed


class Stopwatch:
    """Tell when enough steps were taken.

    Args:
        steps: that are enough, or None.
        seconds: beyond the first steps, that are enough, or None.
    """

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        self._clock = time.monotonic
        self._steps, self._seconds = steps, seconds
        self._taken, self._began = 0, 0.0

    def over(self) -> bool:
        """Count a step; tell whether it was the last."""
        self._taken += 1
        if self._taken <= WARM:
            self._began = self._clock()
        late = self._seconds is not None and self._taken >= WARM + LEAST and self._clock() > self._began + self._seconds
        return late or (self._steps is not None and self._taken >= self._steps)


# -- the batches ---------------------------------------------------------------------------------------------------------


def whole_batches() -> None:
    """Slice whole batches where the data set gives the same for a list of indices as for one after the other."""
    use_whole_batches(tell)


def workers(count: int) -> None:
    """Let so many workers read ahead, for loaders of the script that have none."""

    def change(settings: dict[str, Any]) -> None:
        if not settings.get("num_workers") and not isinstance(settings["dataset"], IterableDataset):
            settings |= {"num_workers": count, "persistent_workers": True, "prefetch_factor": 4}

    _loaders_with(change)


def batch(factor: int, rate: float) -> None:
    """Make the batches of loaders that shuffle so many times as large, with another rate."""

    def change(settings: dict[str, Any]) -> None:
        if settings.get("shuffle") or settings.get("sampler") is not None:
            settings["batch_size"] = factor * (settings.get("batch_size", 1) or 1)

    _loaders_with(change)

    def retune(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * rate

    _at_first_step(retune)


def _loaders_with(change: Callable[[dict[str, Any]], None]) -> None:
    original = DataLoader.__init__
    signature = inspect.signature(original)

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        settings = dict(signature.bind(self, *args, **kwargs).arguments)
        settings.pop("self")
        change(settings)
        original(self, **settings)

    DataLoader.__init__ = made  # type: ignore[method-assign]


def cached() -> None:
    """Give the first batches of every loader again and again: what no loader could do better."""
    kept: dict[int, list[Any]] = {}
    original = dataloader._BaseDataLoaderIter.__next__

    def following(self: Any) -> Any:
        batches = kept.setdefault(id(self._dataset), [])
        given = self.__dict__.get("_given", 0)
        if len(batches) < KEPT_BATCHES:
            batches.append(original(self))
            found = batches[-1]
        elif given >= len(self._index_sampler):
            raise StopIteration
        else:
            found = batches[given % len(batches)]
        self._given = given + 1
        return found

    dataloader._BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]


# -- the model -----------------------------------------------------------------------------------------------------------


def autocast(dtype: str) -> None:
    """Run training forwards in a lower precision where PyTorch holds that for safe; outputs come back in float32."""
    kind = getattr(torch, dtype)

    def around(call: Callable[[], Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        device = next((parameter.device.type for parameter in module.parameters()), "cpu")
        with torch.autocast(device, dtype=kind):
            result = call()
        return _mapped(result, lambda tensor: tensor.float() if tensor.dtype == kind else tensor)

    _around_models(around)


def channels_last() -> None:
    """Keep images with their channels last, as convolutions want them."""
    known: set[int] = set()

    def before(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if id(module) not in known:
            known.add(id(module))
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x  # noqa: E731
        return _mapped(args, last), _mapped(kwargs, last)

    _around_models(lambda call, module, args, kwargs: call(), before)


def compiled() -> None:
    """Compile each model when it is called first."""
    known: set[int] = set()

    def before(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if id(module) not in known:
            known.add(id(module))
            module.compile()
        return args, kwargs

    _around_models(lambda call, module, args, kwargs: call(), before)


def _around_models(around: Callable[..., Any], before: Callable[..., tuple[Any, Any]] | None = None) -> None:
    """Do something around the outermost calls of models whose gradient is wanted."""
    original = nn.Module.__call__
    inside = [False]

    def outermost(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if inside[0] or not torch.is_grad_enabled() or next(self.parameters(), None) is None:
            return original(self, *args, **kwargs)
        inside[0] = True
        try:
            if before is not None:
                args, kwargs = before(self, args, kwargs)
            return around(lambda: original(self, *args, **kwargs), self, args, kwargs)
        finally:
            inside[0] = False

    nn.Module.__call__ = outermost  # type: ignore[method-assign]


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change the tensors of nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(each, change) for each in value)
    if type(value) is dict:
        return {name: _mapped(each, change) for name, each in value.items()}
    return value


# -- the rest --------------------------------------------------------------------------------------------------------------


def optimiser_kernel(kind: str) -> None:
    """Update parameters all at once, by `fused` or `foreach`."""

    def switch(optimizer: Any) -> None:
        if not all(kind in group for group in optimizer.param_groups):
            tell("lever", f"{type(optimizer).__name__} has no {kind} kernel")
            return
        for group in optimizer.param_groups:
            group.update({"fused": kind == "fused", "foreach": kind == "foreach"} if "fused" in group else {"foreach": True})

    _at_first_step(switch)


def _at_first_step(change: Callable[[Any], None]) -> None:
    known: set[int] = set()

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in known:
            known.add(id(optimizer))
            change(optimizer)

    register_optimizer_step_pre_hook(before)


def threads(count: int) -> None:
    """Let an operation use so many threads, whatever the script sets."""
    torch.set_num_threads(count)
    torch.set_num_threads = lambda nthreads: None


LEVERS: dict[str, Callable[..., None]] = {
    "whole_batches": whole_batches,
    "workers": workers,
    "batch": batch,
    "cached": cached,
    "autocast": autocast,
    "channels_last": channels_last,
    "compiled": compiled,
    "optimiser_kernel": optimiser_kernel,
    "threads": threads,
}
