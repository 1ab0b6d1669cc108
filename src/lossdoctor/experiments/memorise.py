"""Memorise sixteen examples: can this model, with this loss, fit anything at all?

Adam at 1e-2, 1e-3 and 1e-4 whatever rate the run used, dropout off; from the run's own start and from five fresh ones,
since one start can be lucky. The loss is told relative to what it is when one guesses (or to its first value where that
is not known), so that it means the same for every loss.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, described, reinitialise, without_dropout
from lossdoctor.record.capture import Batch, inputs

EXAMPLES = 16  # Karpathy's recipe: ten to fifty
STEPS = 300
RATES = (1e-2, 1e-3, 1e-4)  # the first decides most (field guide, measured)
STARTS = 5
PASSED = 0.01  # relative loss at which an example set counts as memorised; healthy loops reach it within 20 to 40 steps
FEW, FEW_STEPS, FEW_RATE = 4, 10, 1e-3  # where steps are dear: examples, steps at least, one rate that suits large networks too
SHORT = 32  # positions that are kept of a sequence then
_AFFORDED = 40  # steps that must fit into the time for the full question
_PATIENCE = 60  # steps without a gain of 1 % after which a rate is given up


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the best relative loss after memorising, from the own start and from fresh ones.

    Returns:
        `rows`, `guess` (loss when guessing on these rows), `own` (best relative loss from the run's start), `by_rate`,
        `fresh` (list), `fresh_median`, `steps` (until memorised, from the own start), `kind` of the loss.
    """
    batches = _sixteen(replay)
    models = replay.start()
    begun = time.monotonic()
    with without_dropout(models):
        _loss(replay, models, batches).backward()  # type: ignore[no-untyped-call]
    if _AFFORDED * (time.monotonic() - begun) > deadline.at - time.monotonic():
        del models
        return _few(replay, deadline)
    models = replay.start()
    with without_dropout(models):
        call = _call(replay, models, batches)
        guess = _guess(replay, models, batches, call)
        by_rate, steps = _try_rates(replay, models, batches, guess, deadline)
        fresh = _fresh_starts(replay, batches, guess, deadline)
    own = min(by_rate.values())
    facts: dict[str, Any] = {"rows": sum(len(rows) for _, rows in batches), "guess": guess, "own": own, "steps": steps}
    facts["by_rate"] = {f"{rate:g}": loss for rate, loss in by_rate.items()}
    facts["kind"] = call["kind"] if call else None
    if fresh:
        facts |= {"fresh": fresh, "fresh_median": statistics.median(fresh)}
    return facts


def _few(replay: Replay, deadline: Deadline) -> dict[str, Any]:
    """Memorise four short examples at one rate, as many steps as the time allows; what did not get there says nothing.

    Raises:
        ReplayRefused: they were not memorised in time.
    """
    batch = replay.batches[0]
    rows = torch.arange(min(FEW, batch.rows))
    models = replay.start()
    optimizer = torch.optim.Adam([each for model in models for each in model.parameters() if each.requires_grad], lr=FEW_RATE)
    losses: list[float] = []
    begun = time.monotonic()
    with without_dropout(models):
        constants = _shortened(replay, models, batch, rows)
        while len(losses) < FEW_STEPS or not deadline.over:
            optimizer.zero_grad()
            loss = replay.loss_of(models, batch, constants, len(rows))
            losses.append(float(loss.detach()))
            if losses[-1] < PASSED * abs(losses[0]) or not math.isfinite(losses[-1]) or len(losses) > STEPS:
                break
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    own = min((each for each in losses if math.isfinite(each)), default=math.inf) / (abs(losses[0]) or 1.0)
    if not own < PASSED:
        took = time.monotonic() - begun
        raise ReplayRefused(
            f"{len(losses)} steps of {len(rows)} examples took {took:.0f} s and brought the loss to {own:.2f} of the first; "
            "`lossdoctor check --workup-seconds 600` gives it more time"
        )
    return {"rows": len(rows), "guess": abs(losses[0]), "own": own, "steps": len(losses), "by_rate": {f"{FEW_RATE:g}": own}, "kind": None}


def _shortened(replay: Replay, models: list[nn.Module], batch: Batch, rows: Tensor) -> list[Tensor]:
    """Return the constants of some rows with their sequences cut; as they are where the model does not take them so."""
    constants = replay.constants(batch, rows)
    length = next((int(each.shape[1]) for each in inputs(batch) if each.dim() == 2 and not each.is_floating_point()), 0)
    if length <= SHORT:
        return constants
    cut = [_cut(each, len(rows), length) for each in constants]
    try:
        with torch.no_grad():
            value = float(replay.loss_of(models, batch, cut, len(rows)))
    except (RuntimeError, IndexError, ValueError):
        return constants
    return cut if math.isfinite(value) else constants


def _cut(tensor: Tensor, rows: int, length: int) -> Tensor:
    """Cut what has a place for each position, flattened or not."""
    if tensor.dim() > 1 and tensor.shape[:2] == (rows, length):
        return tensor[:, :SHORT]
    return tensor.reshape(rows, length)[:, :SHORT].flatten() if tensor.dim() == 1 and len(tensor) == rows * length else tensor


def _sixteen(replay: Replay) -> list[tuple[int, Tensor]]:
    """Choose batches and rows of them: sixteen examples in all, fewer where fewer were captured."""
    chosen: list[tuple[int, Tensor]] = []
    left = EXAMPLES
    for number, batch in enumerate(replay.batches):
        if left <= 0:
            break
        rows = min(left, batch.rows)
        chosen.append((number, torch.arange(rows)))
        left -= rows
    return chosen


def _loss(replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]]) -> Tensor:
    losses = [replay.loss(models, replay.batches[number], rows) for number, rows in batches]
    return losses[0] if len(losses) == 1 else torch.stack(losses).mean()


def _call(replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]]) -> dict[str, Any] | None:
    number, rows = batches[0]
    batch = replay.batches[number]
    if len(batches) > 1 or len(rows) < 2:
        return None
    try:
        return described(replay, models, batch, replay.constants(batch, rows))
    except (RuntimeError, IndexError, ValueError):
        return described(replay, models, batch, replay.constants(batch))


def _guess(replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]], call: dict[str, Any] | None) -> float:
    """Return the loss when guessing, scaled as the script scales its loss; the first loss where it is not known."""
    with torch.no_grad():
        first = float(_loss(replay, replay.start(), batches))
    guess = (call or {}).get("guess_loss")
    value = (call or {}).get("value")
    if guess is None or not math.isfinite(guess) or guess <= 0 or not value or not math.isfinite(value):
        return abs(first) if math.isfinite(first) and first else 1.0
    return float(guess * abs(first / value)) if math.isfinite(first) and first else float(guess)


def _try_rates(
    replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]], guess: float, deadline: Deadline
) -> tuple[dict[float, float], int]:
    by_rate: dict[float, float] = {}
    for rate in RATES:
        fresh = replay.start()
        by_rate[rate], steps = fit(replay, fresh, batches, rate, guess, deadline)
        if by_rate[rate] < PASSED or deadline.over:
            return by_rate, steps
    return by_rate, STEPS


def _fresh_starts(replay: Replay, batches: list[tuple[int, Tensor]], guess: float, deadline: Deadline) -> list[float]:
    losses = []
    for seed in range(STARTS):
        models = replay.start()
        if deadline.over or not all(reinitialise_seeded(model, seed) for model in models):
            break
        best, _ = fit(replay, models, batches, RATES[0], guess, deadline)
        if best >= PASSED and not deadline.over:
            again = replay.start(seed)
            best = min(best, fit(replay, again, batches, RATES[1], guess, deadline)[0])
        losses.append(best)
    return losses


def reinitialise_seeded(model: nn.Module, seed: int) -> bool:
    """Give a model a fresh start of its own seed; False where its layers do not know how."""
    torch.manual_seed(seed)
    return reinitialise(model)


def fit(
    replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]], rate: float, guess: float, deadline: Deadline
) -> tuple[float, int]:
    """Minimise the loss of some rows with Adam; return the best relative loss and the steps taken."""
    parameters = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate)
    best, since, steps = math.inf, 0, 0
    for _ in range(STEPS):
        steps += 1
        optimizer.zero_grad()
        loss = _loss(replay, models, batches)
        relative = float(loss.detach()) / guess
        if relative < 0.99 * best:
            best, since = relative, 0
        since += 1
        if best < PASSED or not math.isfinite(relative) or since > _PATIENCE or deadline.over:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return best, steps
