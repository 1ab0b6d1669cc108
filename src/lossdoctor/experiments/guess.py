"""What does this loss give for the best answer that is the same for every example? Found for any loss, written by hand as well.

The model is taken out and a constant put in its place, in the form that the model's outputs have (probabilities, log-probabilities or
any numbers); the constant that makes the captured losses least is sought with L-BFGS (Nocedal 1980).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.examples import examples
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.record.capture import Batch

_ROWS = 500  # captured rows that are used at most
_ROUNDS = 60  # of L-BFGS; losses of classes and distances settle within twenty
_RUNAWAY = 50.0  # a constant that grows beyond this, in units of the outputs, makes the loss less without end: there is no guess
_LEAST_ROWS = 4  # rows for each number of the constant; fewer would be learnt by heart


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the loss of the best constant answer and of the neutral one.

    Returns:
        `guess`, `zero` (the loss where every output is zero, or every class equally likely), `rows`, `form` of the outputs;
        where the targets are classes also `classes` and `likeliest` (share of the most frequent).

    Raises:
        ReplayRefused: the model returns several tensors, is called several times, or no constant is best.
    """
    batches = _some(replay.batches)
    outputs = [_output(replay, batch) for batch in batches]
    form = _form(outputs)
    answer = torch.zeros(_constant_shape(outputs), requires_grad=True)
    stand_ins = [_Constant(model, answer, form) for model in replay.start()]

    def loss() -> Tensor:
        return torch.stack([_loss(replay, stand_ins, batch, output.shape) for batch, output in zip(batches, outputs, strict=True)]).mean()

    zero = float(loss().detach())
    guess = _least(answer, loss, deadline)
    unit = max(1.0, float(torch.cat([output.flatten() for output in outputs]).std()))
    if not math.isfinite(guess) or not math.isfinite(zero) or float(answer.detach().abs().max()) > _RUNAWAY * unit:
        raise ReplayRefused("no constant answer is best under this loss")
    facts = {"guess": guess, "zero": zero, "rows": sum(batch.rows for batch in batches), "form": form}
    return facts | _classes(replay)


class _Constant(nn.Module):
    """Stand in for a model: the same answer for every row; its parameters are the model's, for penalties on them."""

    def __init__(self, model: nn.Module, answer: Tensor, form: str) -> None:
        super().__init__()
        self.model, self.answer, self.form = model, answer, form
        self.shape = torch.Size()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return _FORMS[self.form](self.answer).expand(self.shape)

    def get_parameter(self, target: str) -> nn.Parameter:
        return self.model.get_parameter(target)


_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "numbers": lambda answer: answer,
    "probabilities": lambda answer: answer.softmax(-1),
    "log-probabilities": lambda answer: answer.log_softmax(-1),
    "shares": torch.sigmoid,
}


def _form(outputs: list[Tensor]) -> str:
    values = torch.cat([output.flatten(0, -2) if output.dim() > 1 else output[:, None] for output in outputs])
    if values.shape[-1] > 1 and bool(((values.exp().sum(-1) - 1).abs() < 1e-3).all()):
        return "log-probabilities"
    if bool(((values >= 0) & (values <= 1)).all()):
        return "probabilities" if values.shape[-1] > 1 and bool(((values.sum(-1) - 1).abs() < 1e-3).all()) else "shares"
    return "numbers"


def _some(batches: list[Batch]) -> list[Batch]:
    chosen: list[Batch] = []
    for batch in batches:
        if chosen and sum(each.rows for each in chosen) + batch.rows > _ROWS:
            break
        chosen.append(batch)
    return chosen


def _output(replay: Replay, batch: Batch) -> Tensor:
    """Return what the model gives for a batch; refuse where it is called more than once or gives more than one tensor."""
    found: list[Any] = []
    models = replay.start()
    handles = [model.register_forward_hook(lambda module, args, result: found.append(result)) for model in models]
    with torch.no_grad():
        replay.loss(models, batch)
    for handle in handles:
        handle.remove()
    if len(found) != 1 or not isinstance(found[0], Tensor) or not found[0].is_floating_point() or not found[0].dim():
        raise ReplayRefused("the loss is not made of one tensor that the model returns once")
    return found[0].detach()


def _constant_shape(outputs: list[Tensor]) -> torch.Size:
    """Return the shape of one row, or of its last axis where a row has too many numbers to be learnt from the rows at hand."""
    shapes = {output.shape[1:] for output in outputs}
    rows = sum(len(output) for output in outputs)
    if len(shapes) == 1:
        shape = next(iter(shapes))
        if shape.numel() * _LEAST_ROWS <= rows:
            return shape
    last = {output.shape[-1:] for output in outputs if output.dim() > 1}
    entries = sum(output[..., 0].numel() for output in outputs if output.dim() > 1)
    if len(last) == 1 and next(iter(last)).numel() * _LEAST_ROWS <= entries:
        return next(iter(last))
    raise ReplayRefused("too few rows were captured for the size of the outputs")


def _loss(replay: Replay, stand_ins: list[_Constant], batch: Batch, shape: torch.Size) -> Tensor:
    for stand_in in stand_ins:
        stand_in.shape = shape
    return replay.loss([*stand_ins], batch)


def _least(answer: Tensor, loss: Callable[[], Tensor], deadline: Deadline) -> float:
    optimizer = torch.optim.LBFGS([answer], max_iter=_ROUNDS, tolerance_grad=1e-4, tolerance_change=1e-6, line_search_fn="strong_wolfe")
    lowest = [math.inf]

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        if deadline.over:
            raise ReplayRefused("the time was over before the best constant answer was found")
        value.backward()  # type: ignore[no-untyped-call]
        lowest[0] = min(lowest[0], float(value.detach()))
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return lowest[0]


def _classes(replay: Replay) -> dict[str, Any]:
    try:
        data = examples(replay)
    except ReplayRefused:
        return {}
    if data.kind not in ("classes", "one_hot"):
        return {}
    labels = torch.from_numpy(data.targets if data.kind == "classes" else data.targets.argmax(1)).long()
    counts = torch.unique(labels, return_counts=True)[1]
    return {"classes": len(counts), "likeliest": float(counts.max() / counts.sum())}
