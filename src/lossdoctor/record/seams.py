"""Patch torch, the only place that does; every patch is undone exactly.

Each wrapper calls the observer before and after the original. An observer that raises is dropped for that seam alone, and
the training goes on. Where dynamo or a tracer is at work the wrappers pass the call on at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

import torch
import torch.nn.functional
import torch.utils.data.dataloader
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.nn.utils import clip_grad
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lossdoctor.record.events import Observer
from lossdoctor.record.steady import Steady

# `warnings.warn(stacklevel=...)` passes over frames whose file name holds these two words, the import system's: a warning of
# torch still points at the script's line. The launcher leaves frames of this folder out of a traceback.
SEAM_FILE = f"{__file__}: importlib _bootstrap"

LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linear_cross_entropy",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
)
DROPOUTS = ("alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")

Function = TypeVar("Function", bound=Callable[..., Any])
# `is_compiling` in two parts, for what every step calls: dynamo answers the first by itself and never meets the second,
# which `torch.export` sets.
_flags: Any = torch.compiler if hasattr(torch.compiler, "_is_compiling_flag") else SimpleNamespace(_is_compiling_flag=False)
_tracing = torch._C._get_tracing_state
_transformed = torch._C._are_functorch_transforms_active


class Seams:
    """Hold the patches that are in place.

    Args:
        observer: is told what happens.

    Example:
        >>> from lossdoctor.record.events import Observer
        >>> from lossdoctor.record.recorder import Recorder
        >>> seams = Seams(Observer(Recorder.silent(), 0.01))
        >>> before = torch.autograd.backward
        >>> seams.install(); torch.autograd.backward is before
        False
        >>> seams.undo(); torch.autograd.backward is before
        True
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._undo: list[Callable[[], object]] = []
        self._pid = os.getpid()

    def install(self) -> None:
        """Put all patches in place."""
        observer = self.observer
        self._patch(torch.nn.Module, "__call__", module_call)
        self._patch(torch.autograd, "backward", backward)
        for name in LOSSES:
            self._patch(torch.nn.functional, name, functools.partial(loss, name))
        for name in DROPOUTS:
            self._patch(torch.nn.functional, name, functools.partial(dropout, "alpha" not in name))
        self._patch(torch.nn.functional, "batch_norm", batch_norm)
        self._patch(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", loader_next)
        for owner in (torch.nn.utils, clip_grad):
            self._patch(owner, "clip_grad_norm_", clip)
            self._patch(owner, "clip_grads_with_norm_", clip_with_norm)
        self._patch(torch.optim.Optimizer, "__init__", optimizer_made)
        self._patch(torch.amp.GradScaler, "scale", scale)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler):
                self._patch(kind, "__init__", scheduler_made)
                self._patch(kind, "step", scheduler_stepped)
        observer.capture.watch_backward = self._sometimes(torch.Tensor, "backward", tensor_backward)
        observer.watch_zero_grad = self._sometimes(torch.optim.Optimizer, "zero_grad", zero_grad)
        observer.watch_zero_grad(True)
        self._undo.append(register_optimizer_step_pre_hook(_step_pre(observer)).remove)
        self._undo.append(register_optimizer_step_post_hook(_step_post(observer)).remove)

    def undo(self) -> None:
        """Take all patches out; what a later patch of somebody else covers stays, and passes calls on."""
        self.observer.steady.leave(alike=True)
        self.observer.off = True
        self.observer.capture.stop()
        while self._undo:
            self._undo.pop()()

    def _patch(self, owner: Any, name: str, make: Callable[[Any, Observer], Any]) -> None:
        if name in vars(owner):  # else this torch has no such function
            self._sometimes(owner, name, make)(True)

    def _sometimes(self, owner: Any, name: str, make: Callable[[Any, Observer], Any]) -> Callable[[bool], None]:
        """Return what puts a patch in place and takes it out again: one that is rarely needed costs nothing meanwhile."""
        original = vars(owner)[name]
        wrapper = make(original, self.observer)
        functools.update_wrapper(wrapper, original)
        if owner is torch.nn.functional:  # torch.jit.script and dynamo take the original
            vars(wrapper).update({"__script_if_tracing_wrapper": True, "__original_fn": original})
        _never_compile_alone(wrapper)

        def switch(on: bool) -> None:
            if vars(owner).get(name) is (original if on else wrapper):  # else somebody has covered ours
                setattr(owner, name, wrapper if on else original)

        self._undo.append(lambda: switch(False))
        return switch


def _never_compile_alone(wrapper: Any) -> None:
    """Have dynamo pass over a wrapper that is called outside a graph, as it does with torch's own files; inside it inlines it."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        frames.set_code_exec_strategy(wrapper.__code__, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(frames, "skip_code"):  # torch before 2.7
        frames.skip_code(wrapper.__code__)


def _pass_over(method: Any) -> None:
    """Let a method that stands between the script and torch not count as a frame for `warnings.warn`, nor be compiled alone."""
    method.__code__ = method.__code__.replace(co_filename=SEAM_FILE)
    _never_compile_alone(method)


def unseen(function: Function) -> Function:
    """Let a wrapper made by `function` not count as a frame for `warnings.warn`."""
    assert isinstance(function, FunctionType)
    inner = tuple(
        constant.replace(co_filename=SEAM_FILE) if hasattr(constant, "co_filename") else constant
        for constant in function.__code__.co_consts
    )
    function.__code__ = function.__code__.replace(co_consts=inner)
    return function


@unseen
def module_call(original: Any, observer: Observer) -> Any:
    """See the outermost call of a module; nested ones pass at once."""
    # A nested call does what torch's own `__call__` does instead of calling it: one frame is put in the place of another.
    known = original.__code__.co_names == ("_compiled_call_impl", "_call_impl")
    capture, steady = observer.capture, observer.steady

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if is_dynamo_compiling():
            return original(self, *args, **kwargs)
        if observer.depth and known and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        if observer.depth or observer.off or _flags._is_compiling_flag or _tracing() or _transformed():
            return original(self, *args, **kwargs)
        if steady.active and steady.fits(self):
            return steady.follow_forward(original, self, args, kwargs)
        call = observer.forward_began(self, args, kwargs)
        if call is None:
            return original(self, *args, **kwargs)
        if capture.wanted:
            capture.forward_began(call.kind == "training", self, args, kwargs)
        observer.depth = 1
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            capture.drop()
            observer.forward_failed(call)
            raise
        finally:
            observer.depth = 0
        observer.forward_ended(call, result)
        if capture.wanted:
            capture.forward_ended(result)
        return result

    return __call__


@unseen
def backward(original: Any, observer: Observer) -> Any:
    """See the outermost backward."""

    capture, steady = observer.capture, observer.steady

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if is_dynamo_compiling() or observer.depth == 2 or observer.off or _flags._is_compiling_flag:
            original(tensors, *args, **kwargs)
            return
        if steady.active:
            if not observer.depth and steady.expects_backward(tensors):
                steady.follow_backward(original, tensors, args, kwargs)
                return
            steady.leave()
        before = observer.depth
        if capture.wanted:
            capture.backward_began(tensors)
        observer.backward_began(tensors)
        observer.depth = 2
        try:
            original(tensors, *args, **kwargs)
        finally:
            observer.depth = before
        observer.backward_ended(tensors, args, kwargs)

    return backward


@unseen
def tensor_backward(original: Any, observer: Observer) -> Any:
    """Stop watching functions before `backward`, which is one of them; `torch.autograd.backward` is where it is seen."""

    capture = observer.capture

    def backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if capture.wanted:
            capture.pause()
        original(self, *args, **kwargs)

    return backward


@unseen
def loss(kind: str, original: Any, observer: Observer) -> Any:
    """See the outermost call of a known loss function."""

    steady = observer.steady

    def known_loss(*args: Any, **kwargs: Any) -> Any:
        if (
            is_dynamo_compiling()
            or _flags._is_compiling_flag
            or observer.in_loss
            or observer.depth == 2
            or observer.off
            or _tracing()
            or _transformed()
        ):
            return original(*args, **kwargs)
        observer.in_loss = True
        try:
            value = original(*args, **kwargs)
        finally:
            observer.in_loss = False
        if not steady.active or not steady.take_loss(value):
            observer.loss_called(kind, args, kwargs, value)
        return value

    return known_loss


@unseen
def dropout(by_default: bool, original: Any, observer: Observer) -> Any:
    """See whether dropout is drawn."""

    def dropout(input: Any, p: float = 0.5, training: bool = by_default, *args: Any, **kwargs: Any) -> Any:
        if not is_dynamo_compiling() and not _flags._is_compiling_flag and training and p and not observer.off:
            observer.drawn = True
        return original(input, p, training, *args, **kwargs)

    return dropout


@unseen
def batch_norm(original: Any, observer: Observer) -> Any:
    """See whether statistics of the batch are used."""

    def batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False, *rest: Any, **named: Any) -> Any:  # fmt: skip  # noqa: E501
        if not is_dynamo_compiling() and not _flags._is_compiling_flag and training and not observer.off:
            observer.drawn = True
        return original(input, running_mean, running_var, weight, bias, training, *rest, **named)

    return batch_norm


@unseen
def loader_next(original: Any, observer: Observer) -> Any:
    """Time the wait for the next batch."""

    loaders = observer.loaders

    def __next__(self: Any) -> Any:  # noqa: N807
        if observer.off:
            return original(self)
        began = observer.clock()
        try:
            batch = loaders.divide(original, self) if loaders.to_divide else original(self)
        except StopIteration:
            observer.loaders.ended(began)
            raise
        observer.loaders.gave(self, began)
        return batch

    return __next__


@unseen
def clip(original: Any, observer: Observer) -> Any:
    """See the gradient norm before clipping."""

    def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
        norm = original(parameters, max_norm, *args, **kwargs)
        if not is_compiling() and not observer.off:
            observer.clipped(norm, max_norm)
        return norm

    return clip_grad_norm_


@unseen
def clip_with_norm(original: Any, observer: Observer) -> Any:
    """See the gradient norm before clipping, where a library measured it before."""

    def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(parameters, max_norm, total_norm, *args, **kwargs)
        if not is_compiling() and not observer.off:
            observer.clipped(total_norm, max_norm)
        return result

    return clip_grads_with_norm_


@unseen
def optimizer_made(original: Any, observer: Observer) -> Any:
    """Know which optimisers exist."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        if not observer.off:
            observer.optimizer_made(self)

    return __init__


@unseen
def scheduler_made(original: Any, observer: Observer) -> Any:
    """Know which learning-rate schedulers exist."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        if not observer.off:
            observer.scheduler_made(self)

    return __init__


@unseen
def scheduler_stepped(original: Any, observer: Observer) -> Any:
    """Know how often a scheduler steps, and what a plateau is told."""

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not observer.off:
            observer.scheduler_stepped(self, args, kwargs)  # before it: at its end a schedule may raise
        return original(self, *args, **kwargs)

    return step


@unseen
def zero_grad(original: Any, observer: Observer) -> Any:
    """Know which optimisers' gradients are reset by their own method."""

    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        if not is_compiling() and id(self) not in observer.resetting:
            observer.zero_grad_called(self)
        original(self, *args, **kwargs)

    return zero_grad


@unseen
def scale(original: Any, observer: Observer) -> Any:
    """See by what a gradient scaler multiplies a loss."""

    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if not is_compiling() and not observer.off:
            observer.scaled(self, outputs, scaled)
        return scaled

    return scale


def _step_pre(observer: Observer) -> Callable[..., Any]:
    steady = observer.steady

    def pre(optimizer: Any, args: Any, kwargs: Any) -> Any:
        if is_dynamo_compiling() or _flags._is_compiling_flag or observer.off:
            return None
        if steady.active and len(args) == 1 and not kwargs and steady.expects_step(optimizer):
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        observer.step_began(optimizer, closure is not None)
        if closure is None:
            return None
        wrapped = _closure(closure, optimizer, observer)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": wrapped}
        return (args[0], wrapped, *args[2:]), kwargs

    return pre


@unseen
def _closure(original: Any, optimizer: Any, observer: Observer) -> Any:
    """Measure where a closure ends: only there are the gradients those of this step."""

    def closure(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not observer.off:
            observer.step_before(optimizer)
        return result

    return closure


def _step_post(observer: Observer) -> Callable[..., None]:
    steady = observer.steady

    def post(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_dynamo_compiling() or _flags._is_compiling_flag or observer.off:
            return
        if not steady.active or not steady.take_step(optimizer):
            observer.step_ended(optimizer)

    return post


for _method in (Steady.follow_forward, Steady.follow_backward):
    _pass_over(_method)
