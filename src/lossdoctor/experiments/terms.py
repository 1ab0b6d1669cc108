"""A loss of several terms: how large is each one's gradient, and how far does the main term fall with and without the others?

The main term is the one that a known loss function made. The others are penalties.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, described
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.record.capture import Batch
from lossdoctor.record.program import Program, Ref

STEPS = 200
LARGE = 0.5  # share of the gradient from which on penalties are worth a repetition
_SUMS = ("add", "__add__", "__radd__", "add_", "__iadd__", "sub", "__sub__")
_SCALES = ("mul", "__mul__", "__rmul__", "mul_", "div", "__truediv__", "truediv", "true_divide")
_LOSSES = ("_loss", "_logits", "_entropy")


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of the loss at the start, and where the main one ends after some steps with and without the others.

    Returns:
        `terms`: list of `operation`, `value` (as it enters the loss), `gradient` (norm); `main` (its place), `share` (of the penalties in
        the sum of gradient norms); where that is large: `start`, `guess`, `together` and `alone` (of the main term), `steps`.
    """
    batch = replay.batches[0]
    numbers = terms_of(batch.program)
    names = {number: name_of(batch.program, number) for number in numbers}
    mains = [number for number in numbers if names[number].endswith(_LOSSES)]
    if len(numbers) < 2 or len(mains) != 1:
        raise ReplayRefused("the loss is no sum of one known loss and other terms")
    main = mains[0]
    models = replay.start()
    found = [_size(replay, models, batch, number) for number in numbers]
    sizes = [term["gradient"] for term in found]
    share = 1.0 - sizes[numbers.index(main)] / sum(sizes) if sum(sizes) > 0 else 0.0
    told = [{"operation": names[number], **term} for number, term in zip(numbers, found, strict=True)]
    facts = {"terms": told, "main": numbers.index(main), "share": share}
    if not share > LARGE:
        return facts
    return facts | _courses(replay, parameters, deadline, names[main])


def terms_of(program: Program) -> list[int]:
    """Return the numbers of the tensors that a loss is the sum of, scaled or not."""
    made = {number: instruction for instruction in program.instructions for number in instruction.results}
    found: list[int] = []
    queue = [program.result] if program.result is not None else []
    while queue:
        number = queue.pop(0)
        instruction = made[number]
        name = getattr(instruction.call, "__name__", "")
        inner = [item.number for item in instruction.args if isinstance(item, Ref)]
        if (name in _SUMS and len(inner) == 2) or (name in (*_SUMS, *_SCALES) and len(inner) == 1):
            queue += inner
        else:
            found.append(number)
    return found


def name_of(program: Program, number: int) -> str:
    """Name the function that made a term; of a mean or a sum, the loss function that it is taken of."""
    made = {result: instruction for instruction in program.instructions for result in instruction.results}
    instruction = made[number]
    name = getattr(instruction.call, "__name__", "")
    inner = [item.number for item in instruction.args if isinstance(item, Ref)]
    return name_of(program, inner[0]) if name in ("mean", "sum", "neg", "squeeze") and inner else name


def value_of_term(replay: Replay, models: list[nn.Module], batch: Batch, number: int, rows: Tensor | None = None) -> Tensor:
    """Return one term's value, of some rows or of all."""
    program = Program(batch.program.instructions, batch.program.constants, number)
    part = dataclasses.replace(batch, program=program)
    return replay.loss_of(models, part, replay.constants(batch, rows), None if rows is None else len(rows))


def _size(replay: Replay, models: list[nn.Module], batch: Batch, number: int) -> dict[str, float]:
    """Return value and gradient norm of a term, as it enters the loss: with the factor in front of it."""
    torch.manual_seed(0)
    factor = _factor(batch.program, number)
    value = factor * value_of_term(replay, models, batch, number)
    parameters = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    norm = math.sqrt(sum(float(each.double().square().sum()) for each in gradients if each is not None))
    return {"value": float(value.detach()), "gradient": norm}


def _factor(program: Program, number: int) -> float:
    """Return what a term is multiplied by on the way into the loss."""
    factor, current = 1.0, number
    while current != program.result:
        user = next((each for each in program.instructions if any(isinstance(a, Ref) and a.number == current for a in each.args)), None)
        if user is None:
            return factor
        name = getattr(user.call, "__name__", "")
        other = next((a for a in user.args if isinstance(a, (int, float))), 1.0)
        factor = factor * other if "mul" in name else factor / other if "div" in name and other else factor
        current = user.results[0]
    return factor


def _courses(replay: Replay, parameters: dict[str, Any], deadline: Deadline, name: str) -> dict[str, Any]:
    call = described(replay, replay.start(), replay.batches[0], replay.constants(replay.batches[0]))
    together, alone = (_course(replay, parameters, deadline, name, only_main) for only_main in (False, True))
    steps = min(len(together), len(alone))
    if steps < STEPS // 2:
        raise ReplayRefused("the time was over before both repetitions were done")
    guess = (call or {}).get("guess_loss")
    return {"start": alone[0], "guess": guess, "together": _end(together[:steps]), "alone": _end(alone[:steps]), "steps": steps}


def _course(replay: Replay, parameters: dict[str, Any], deadline: Deadline, name: str, only_main: bool) -> list[float]:
    torch.manual_seed(0)
    models = replay.start()
    optimizer = optimizer_for(models, parameters, 1.0)
    losses: list[float] = []
    for step in range(STEPS):
        if deadline.over:
            break
        batch = replay.batches[step % len(replay.batches)]
        number = next(each for each in terms_of(batch.program) if name_of(batch.program, each) == name)
        optimizer.zero_grad()
        state = torch.get_rng_state()
        main = value_of_term(replay, models, batch, number)
        losses.append(float(main.detach()))
        if not only_main:
            torch.set_rng_state(state)
            main = replay.loss(models, batch)
        main.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return losses


def _end(losses: list[float]) -> float:
    return statistics.median(losses[-max(1, len(losses) // 10) :])
