"""How a model's output answers to a change of its input: the first model call of a captured batch, done again on other inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Replay, ReplayRefused
from lossdoctor.record.capture import Batch, inputs
from lossdoctor.record.program import Program, replace, tensors

ROUNDING = 1e-4  # relative change of an output below which it counts as unchanged: float32 sums in another order stay under 1e-5

SHAKE = 0.02  # what a weight is moved by where all of its kind are alike: the usual spread of embeddings at the start


class Response:
    """Give the output of the first model call for changed inputs; dropout off, batch norm by fixed statistics.

    Args:
        replay: gives the model at its start.
        batch: a captured step.
        seed: of a fresh start; the run's own where left out.

    Raises:
        ReplayRefused: where the model returns nothing that is known.
    """

    def __init__(self, replay: Replay, batch: Batch, seed: int | None = None) -> None:
        self._batch = batch
        self._models = replay.start(seed)
        for model in self._models:
            settle(model)
        self._constants = replay.constants(batch)
        first = batch.program.instructions[0]
        self._programs = [Program([first], [], number) for number in first.results]
        self.given = [tensor for tensor in inputs(batch) if tensor.dim()]
        self.outputs = self._run(self._constants)
        if not self.outputs:
            raise ReplayRefused("the model returns no numbers")

    def shake(self) -> None:
        """Move every trainable weight: what a model could learn shows also where it starts at zero, as positions often do."""
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in (each for model in self._models for each in model.parameters() if each.requires_grad):
                spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
                parameter.add_(torch.randn_like(parameter) * max(spread, SHAKE))
        self.outputs = self._run(self._constants)

    def with_token(self, token: int, ids: Tensor) -> list[Tensor] | None:
        """Return the outputs where a token's embedding is moved; None where no embedding takes these ids.

        The token's own score is left as it was, since its weights may be those of the embedding.
        """
        taking: list[nn.Embedding] = []

        def note(module: nn.Module, args: Any) -> None:
            if isinstance(module, nn.Embedding) and args and isinstance(args[0], Tensor) and torch.equal(args[0].cpu(), ids.cpu()):
                taking.append(module)

        handles = [
            part.register_forward_pre_hook(note) for model in self._models for part in model.modules() if isinstance(part, nn.Embedding)
        ]
        before = self._run(self._constants)
        for handle in handles:
            handle.remove()
        if not taking:
            return None
        torch.manual_seed(0)
        with torch.no_grad():
            taking[0].weight[token] += torch.randn_like(taking[0].weight[token]) * max(float(taking[0].weight.std()), SHAKE)
        after = self._run(self._constants)
        for one, other in zip(before, after, strict=True):
            if other.shape[-1] == taking[0].num_embeddings:
                other[..., token] = one[..., token]
        return after

    @property
    def draws(self) -> bool:
        """Tell whether the outputs are drawn, also in evaluation mode."""
        again = self._run(self._constants, seed=1)
        return any(not torch.allclose(one, other) for one, other in zip(self.outputs, again, strict=True))

    def changed(self, tensor: Tensor, change: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return the outputs where one of the inputs is changed."""
        return self._run([change(each.clone()) if each is tensor else each for each in self._constants])

    def alike(self, rows: int) -> list[Tensor]:
        """Return the outputs where every example is the first one, in all inputs."""
        mine = {id(tensor) for tensor in self.given if len(tensor) == rows}
        return self._run([each[:1].expand_as(each).clone() if id(each) in mine else each for each in self._constants])

    def _run(self, constants: list[Tensor], seed: int = 0) -> list[Tensor]:
        torch.manual_seed(seed)  # what is drawn is drawn alike
        device = next((parameter.device for model in self._models for parameter in model.parameters()), torch.device("cpu"))
        with torch.no_grad():
            moved = [tensor.to(device) for tensor in constants]
            found = [program.run(self._models, moved) for program in self._programs]
        return [tensor.detach().cpu().double() for tensor in found if tensor.is_floating_point() and tensor.dim()]


def settle(model: nn.Module) -> None:
    """Put a model into evaluation mode, also where its batch norm keeps no statistics: what belongs to a batch by design is left out."""
    model.eval()
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            part.track_running_stats = True
            part.running_mean = torch.zeros(part.num_features)
            part.running_var = torch.ones(part.num_features)


def scale(output: Tensor) -> float:
    """Return what a change of an output is measured against: its spread, or its size where it has none."""
    return float(output.std()) if output.numel() > 1 and float(output.std()) > 0 else float(output.abs().max()) or 1.0


def find_break(replay: Replay, batch: Batch, constants: list[Tensor], factor: float, *, scaled: bool) -> dict[str, Any] | None:
    """Run a step and name the first function after the model whose result is not finite; None where loss and gradient are finite.

    Args:
        constants: of the step.
        factor: what is told as the scale, and what the model's outputs are multiplied by where `scaled`.
    """
    models = replay.start()
    broken: list[str] = []

    def watch(name: str, args: Any, kwargs: Any, result: Any) -> None:
        if not broken and not all(_finite(each) for each in tensors(result)) and all(_finite(each) for each in tensors((args, kwargs))):
            broken.append(name)

    handles = [model.register_forward_hook(lambda module, args, result: _times(result, factor)) for model in models] if scaled else []
    try:
        value = batch.program.run(models, constants, watch=watch)
        loss = value if value.dim() == 0 else value.sum()
        if _finite(loss):
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    gradients = [parameter.grad for model in models for parameter in model.parameters() if parameter.grad is not None]
    if _finite(loss) and all(_finite(each) for each in gradients):
        return None
    return {"factor": factor, "operation": broken[0] if broken else "", "loss": float(loss.detach()), "gradient": _finite(loss)}


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _times(result: Any, factor: float) -> Any:
    return replace(result, lambda item: item * factor if isinstance(item, Tensor) and item.is_floating_point() else item)
