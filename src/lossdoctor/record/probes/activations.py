"""The signal `activations`: zeros, dead units, saturation and spread of each layer's output, during one forward."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from lossdoctor.record.probes.tensors import host, local, positions

MOST_ACTIVATIONS, MOST_LINEAR = 32, 16  # modules that are hooked; evenly spread over the model where it has more
MOST_LAYERS = 64  # outputs that are measured in one forward
MOST_ELEMENTS = 4_096  # of an output that zeros, saturation and spread are taken from: a share to 0.8 %

_MODULES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu", nn.ReLU6: "relu6", nn.LeakyReLU: "leaky_relu", nn.PReLU: "prelu", nn.RReLU: "rrelu", nn.ELU: "elu", nn.CELU: "celu",
    nn.SELU: "selu", nn.GELU: "gelu", nn.SiLU: "silu", nn.Mish: "mish", nn.Hardswish: "hardswish", nn.Softplus: "softplus",
    nn.Sigmoid: "sigmoid", nn.Hardsigmoid: "hardsigmoid", nn.Tanh: "tanh", nn.Hardtanh: "hardtanh",
}  # fmt: skip
_FUNCTIONS = {"special_expit": "sigmoid", **{kind: kind for kind in _MODULES.values()}}
_CHANNELS_FIRST = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "batch_norm", "group_norm")
# Ends of saturating functions: within a hundredth of them the derivative is below 0.02 of tanh's, 0.04 of sigmoid's largest.
_SATURATING = {"tanh": (-0.99, 0.99), "hardtanh": (-0.99, 0.99), "sigmoid": (0.01, 0.99), "hardsigmoid": (0.01, 0.99)}
_FAST_PATHS = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


class ActivationSampler:
    """Measure the outputs of activation functions and linear layers during the forward inside the `with` block.

    Modules are hooked, functions are seen by a torch-function mode; both are gone afterwards, and neither draws random numbers or
    changes a result. Nothing waits for the device before `layers` is read. Nothing is done where anything is compiled (a hook
    would compile it again), and functions are not looked at where attention in eval mode has a fast path that a mode would close.

    32 outputs of 64 x 256: 2.5 ms of CPU time, and 1 us for each torch function of the forward.

    Args:
        model: the module whose forward comes.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU())
        >>> _ = nn.init.constant_(model[0].bias, -100.0)
        >>> with ActivationSampler(model) as sampler:
        ...     _ = model(torch.ones(3, 2))
        >>> [(layer["name"], layer["kind"], layer["dead_units"]) for layer in sampler.layers]
        [('0', 'linear', None), ('1', 'relu', 1.0)]
    """

    def __init__(self, model: nn.Module) -> None:
        self.seconds = 0.0
        self._model = model
        self._error: Exception | None = None
        self._handles: list[Any] = []
        self._mode: _Functions | None = None
        self._measured: list[_Output] = []
        self._calls: dict[str, int] = {}
        self._inside = 0
        self._channels_first = False

    def __enter__(self) -> ActivationSampler:
        began = time.perf_counter()
        try:
            self._attach()
        except BaseException:
            self._detach()
            raise
        self.seconds += time.perf_counter() - began
        return self

    def __exit__(self, *exception: object) -> None:
        self._detach()

    @property
    def layers(self) -> list[dict[str, Any]]:
        """The fields of `activations.layers` in docs/architecture.md, in the order of the calls; raises what went wrong in measuring."""
        if self._error is not None:
            raise self._error
        return [output.fields() for output in self._measured]

    def _attach(self) -> None:
        modules = list(self._model.named_modules())
        if _compiled(module for _, module in modules):
            return
        closed = {name for name, module in modules if isinstance(module, _FAST_PATHS) and not module.training}
        open_modules = [each for each in modules if not any(f"{each[0]}.".startswith(f"{name}." if name else "") for name in closed)]
        for name, module, kind in _chosen(open_modules):
            if kind != "linear":
                self._handles.append(module.register_forward_pre_hook(self._enter_module))
            self._handles.append(module.register_forward_hook(self._hook(name, kind)))
        if not closed:
            mode = _Functions(self)
            mode.__enter__()  # type: ignore[no-untyped-call]
            self._mode = mode

    def _detach(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        while self._handles:
            self._handles.pop().remove()

    def _enter_module(self, module: nn.Module, inputs: object) -> None:
        self._inside += 1

    def _hook(self, name: str, kind: str) -> Callable[[nn.Module, object, object], None]:
        def measure(module: nn.Module, inputs: object, output: object) -> None:
            if kind == "linear":
                self._channels_first = isinstance(module, _ConvNd)
            else:
                self._inside = max(self._inside - 1, 0)
            self.measure(name, kind, output)

        return measure

    def function_called(self, name: str, output: object) -> None:
        """Take the output of a torch function that was called outside the hooked activation modules."""
        if name == "linear" or name in _CHANNELS_FIRST:
            self._channels_first = name != "linear"
        elif name in _FUNCTIONS and not self._inside:
            self.measure(f"{_FUNCTIONS[name]}()", _FUNCTIONS[name], output)

    def measure(self, name: str, kind: str, output: object) -> None:
        """Measure one output; an error is kept for `layers`, the script's forward goes on."""
        if self._error is not None or len(self._measured) >= MOST_LAYERS or torch.compiler.is_compiling():
            return
        began = time.perf_counter()
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._keep(name, kind, local(output))
        except Exception as error:
            self._error = error
        self.seconds += time.perf_counter() - began

    def _keep(self, name: str, kind: str, values: Tensor | None) -> None:
        if values is None or values.dim() < 2 or not values.numel() or not values.is_floating_point():
            return
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        axis = 1 if values.dim() != 3 or self._channels_first else -1
        self._measured.append(_Output.of(name if calls == 1 else f"{name} #{calls}", kind, values, axis))


class _Functions(TorchFunctionMode):
    """Tell the sampler of every torch function that the forward calls."""

    def __init__(self, sampler: ActivationSampler) -> None:
        self.sampler = sampler

    def __torch_function__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in _SEEN:
            name = name.rstrip("_")  # in place
        if name in _SEEN:
            self.sampler.function_called(name, output)
        return output


_SEEN = frozenset(("linear", *_CHANNELS_FIRST, *_FUNCTIONS))


def _compiled(modules: Any) -> bool:
    """Tell whether dynamo has compiled anything in this process: a new hook or mode would make it compile again."""
    if any(type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None for module in modules):
        return True
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["total"])


def _chosen(modules: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module, str]]:
    kinds = [(name, module, _kind(module)) for name, module in modules if not isinstance(module, torch.jit.ScriptModule)]
    activations = _spread([each for each in kinds if each[2] not in ("", "linear")], MOST_ACTIVATIONS)
    return activations + _spread([each for each in kinds if each[2] == "linear"], MOST_LINEAR)


def _kind(module: nn.Module) -> str:
    if isinstance(module, nn.Linear | _ConvNd):
        return "linear"
    return next((_MODULES[kind] for kind in type(module).__mro__ if kind in _MODULES), "")


def _spread(found: list[tuple[str, nn.Module, str]], most: int) -> list[tuple[str, nn.Module, str]]:
    """Return at most so many, evenly spread, the first and the last among them."""
    if len(found) <= most:
        return found
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


@dataclass(frozen=True)
class _Output:
    """Hold what is kept of one output, on its device: some elements, and which units hold anything but zeros."""

    name: str
    kind: str
    units: int
    sample: Tensor
    alive: Tensor | None

    @classmethod
    def of(cls, name: str, kind: str, values: Tensor, axis: int) -> _Output:
        values = values.float() if values.dtype.itemsize == 1 else values  # nothing is computed in float8
        sample = values.take(positions(MOST_ELEMENTS, values.numel()).to(values.device))
        others = tuple(place for place in range(values.dim()) if place != axis % values.dim())
        alive = None if kind == "linear" else values.amax(others).bool() | values.amin(others).bool()
        return cls(name, kind, values.shape[axis], sample, alive)

    def fields(self) -> dict[str, Any]:
        sample = host(self.sample).double().numpy()
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "units": self.units}
        found |= {"zeros": None, "dead_units": None, "saturated": None}
        if self.alive is not None:
            found |= {"zeros": float((sample == 0).mean()), "dead_units": 1 - float(host(self.alive).double().mean())}
        if self.kind in _SATURATING:
            low, high = _SATURATING[self.kind]
            found["saturated"] = float(((sample < low) | (sample > high)).mean())
        with np.errstate(all="ignore"):
            return {**found, "std": float(sample.std()), "finite": float(np.isfinite(sample).mean())}
