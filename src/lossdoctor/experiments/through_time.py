"""How far does a recurrent network remember? The gradient of its last state by earlier ones; then the start that keeps it, tried.

A gated network forgets within some dozens of steps at its start, and learns all the same where the answer lies near. So decay alone says
little: the network is trained for some steps as it is and with recurrent weights that keep the length of what they carry, and the two are
compared.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, described, without_dropout
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.record.program import tensors

LEAST_STEPS = 8  # of time; shorter sequences lose nothing
FADED, GROWN = 1e-3, 1e3  # first over last gradient from which on the other start is tried (starting values)
STEPS = 150
_SECONDS = 3.0  # of each training
_TAIL = 10
_SMALLEST = 1e-45  # of float32: what is lost altogether


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how the gradient changes through time, and whether another start of the recurrent weights learns better.

    Returns:
        `kind` (of the recurrent layer, or of the one that is called again and again), `steps` (of time), `ratio` (gradient of the last
        state by the first step over that by the last), `factor` (of one step); where the ratio is far from 1, and torch's own layers
        are used: `start`, `own` and `kept` (loss at the end of some steps, as it is and with weights that keep the length of
        what they carry), `trained` (steps), `guess` (loss when guessing, None where not known).
    """
    kind, norms = _through_time(replay)
    ratio = max(norms[0], _SMALLEST) / max(norms[-1], _SMALLEST)
    facts: dict[str, Any] = {"kind": kind, "steps": len(norms), "ratio": ratio, "factor": ratio ** (1 / (len(norms) - 1))}
    if FADED < ratio < GROWN or not any(_recurrent(model) for model in replay.start()) or deadline.over:
        return facts
    own = _course(replay, replay.start(), parameters, _until(deadline))
    kept = replay.start()
    for layer in (each for model in kept for each in _recurrent(model)):
        keep_length(layer, len(norms))
    other = _course(replay, kept, parameters, _until(deadline))
    steps = min(len(own), len(other))
    batch = replay.batches[0]
    call = described(replay, replay.start(), batch, replay.constants(batch)) or {}
    ends = {name: statistics.median(each[max(0, steps - _TAIL) : steps]) for name, each in (("own", own), ("kept", other))}
    return facts | ends | {"start": own[0], "trained": steps, "guess": call.get("guess_loss")}


def _until(deadline: Deadline) -> Deadline:
    return deadline.half.within(_SECONDS)


def _recurrent(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if isinstance(part, (nn.RNNBase, nn.RNNCellBase))]


def keep_length(layer: nn.Module, steps: int) -> None:
    """Give recurrent weights a start that keeps the length of what they carry: orthogonal, and gates that stay open for so many steps."""
    for name, weight in layer.named_parameters():
        if not name.startswith("weight_hh"):
            continue
        units = weight.shape[1]
        with torch.no_grad():
            for part in torch.split(weight, units):
                nn.init.orthogonal_(part)
            bias = getattr(layer, name.replace("weight", "bias"), None)
            if bias is not None:
                # The second gate of an LSTM keeps its cell, that of a GRU its state (Tallec and Ollivier, 2018: the logarithm of the span).
                gate = {4: slice(units, 2 * units), 3: slice(units, 2 * units)}.get(len(weight) // units)
                if gate is not None:
                    bias[gate] = math.log(max(2, steps - 1))


def _through_time(replay: Replay) -> tuple[str, list[float]]:
    """Return the norms of the gradient of the last state by what entered, or left, each step of time; the first step first."""
    models = replay.start()
    for model in models:
        model.train()
    layers, handles = _watch(models)
    try:
        with without_dropout(models):
            replay.loss(models, replay.batches[0])
    finally:
        for handle in handles:
            handle.remove()
    for layer, calls in layers.items():
        if isinstance(layer, nn.RNNBase):
            return type(layer).__name__, _of_layer(layer, *calls[0])
        if len(calls) >= LEAST_STEPS:
            norms = _of_calls([result for _, result in calls])
            if norms:
                return type(layer).__name__, norms
    raise ReplayRefused("nothing in the model goes on from one step of time to the next")


def _watch(models: list[nn.Module]) -> tuple[dict[nn.Module, list[Any]], list[Any]]:
    """Keep what recurrent layers were given and what layers that are called again and again gave."""
    seen: dict[nn.Module, list[Any]] = {}

    def note(layer: nn.Module, args: Any, result: Any) -> None:
        seen.setdefault(layer, []).append((args, result))

    kinds = (nn.RNNBase, nn.RNNCellBase, nn.Linear)
    return seen, [part.register_forward_hook(note) for model in models for part in model.modules() if isinstance(part, kinds)]


def _of_layer(layer: nn.Module, args: Any, result: Any) -> list[float]:
    given = args[0]
    if not isinstance(given, Tensor) or given.dim() != 3 or given.shape[1 if layer.batch_first else 0] < LEAST_STEPS:
        raise ReplayRefused("the sequences are short, or packed")
    entered = given.detach().clone().requires_grad_()
    output = layer(entered, *args[1:])[0]
    output = output if layer.batch_first else output.transpose(0, 1)
    forwards = output[:, -1, : layer.hidden_size]  # what goes the other way begins at the last step
    draw = torch.randn(forwards.shape, generator=torch.Generator().manual_seed(0)).to(forwards)
    slope = torch.autograd.grad((forwards * draw).sum(), entered)[0]
    slope = slope if layer.batch_first else slope.transpose(0, 1)
    return [float(each) for each in slope.double().square().sum((0, 2)).sqrt()]


def _of_calls(results: list[Any]) -> list[float]:
    """Return the gradient of the last call's result by each call's; nothing where one does not lead to the next."""
    made = [[each for each in tensors(result) if each.is_floating_point() and each.requires_grad] for result in results]
    if not all(made) or len({each[0].shape for each in made}) != 1:
        return []
    last = made[-1][0]
    draw = torch.randn(last.shape, generator=torch.Generator().manual_seed(0)).to(last)
    slopes = torch.autograd.grad((last * draw).sum(), [each for call in made for each in call], allow_unused=True)
    places = [place for place, call in enumerate(made) for _ in call]
    sums = [0.0] * len(made)
    for place, slope in zip(places, slopes, strict=True):
        sums[place] += float(slope.double().square().sum()) if slope is not None else 0.0
    return [each**0.5 for each in sums] if sums[-2] > 0 else []


def _course(replay: Replay, models: list[nn.Module], parameters: dict[str, Any], deadline: Deadline) -> list[float]:
    torch.manual_seed(0)
    optimizer = optimizer_for(models, parameters, 1.0)
    losses: list[float] = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = replay.loss(models, replay.batches[step % len(replay.batches)])
        losses.append(float(loss.detach()))
        if deadline.over or not math.isfinite(losses[-1]):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        if "clip" in parameters:
            nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], parameters["clip"])
        optimizer.step()
    return losses
