"""Memorise sixteen examples: can this model, with this loss, fit anything at all?

Adam at 1e-2, 1e-3 and 1e-4 whatever rate the run used, dropout off; from the run's own start and from five fresh ones,
since one start can be lucky. The loss is told relative to what it is when one guesses (or to its first value where that
is not known), so that it means the same for every loss.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.few import memorise_few
from lossdoctor.experiments.replay import Deadline, Replay, described, reinitialise, without_dropout
from lossdoctor.experiments.standardise import standardise
from lossdoctor.record.capture import inputs

Change = Callable[[Tensor], Tensor]

EXAMPLES = 16  # Karpathy's recipe: ten to fifty
STEPS = 300
RATES = (1e-2, 1e-3, 1e-4)  # the first decides most (field guide, measured)
STARTS = 5
USUAL = 5.0  # root mean square of inputs: standardised ones 1, beyond it they are off scale (starting value, as of inputs-unscaled)
FAILED = 0.05  # healthy models get to a fifth of this (field guide, measured)
PASSED = 0.01  # relative loss at which an example set counts as memorised; healthy loops reach it within 20 to 40 steps
_AFFORDED = 40  # steps that must fit into the time for the full question
_DRAWN = 40  # losses of a course that a report draws
_PATIENCE = 60  # steps without a gain of 1 % after which a rate is given up


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the best relative loss after memorising, from the own start and from fresh ones.

    Returns:
        `rows`, `guess` (loss when guessing on these rows), `own` (best relative loss from the run's start), `by_rate`,
        `fresh` (list, until more than half agree), `fresh_median`, `steps` (until memorised, from the own start),
        `courses` (of the own start, rate to the relative losses on the way, at most some forty), `kind` of the loss; where neither
        start was able and the inputs are `off_scale`, `standardised`: the best of two fresh starts with standardised inputs, for
        inputs far off scale keep any model from it.
    """
    batches = _sixteen(replay)
    models = replay.start()
    begun = deadline.clock()
    with without_dropout(models):
        _loss(replay, models, batches).backward()  # type: ignore[no-untyped-call]
    if _AFFORDED * (deadline.clock() - begun) > deadline.left:
        del models
        return memorise_few(replay, deadline, PASSED)
    models = replay.start()
    with without_dropout(models):
        call = _call(replay, models, batches)
        guess = _guess(replay, models, batches, call)
        # The rate that decides most comes first everywhere, so that time that runs out leaves an answer.
        courses: dict[float, list[float]] = {rate: [] for rate in RATES}
        first, steps = fit(replay, replay.start(), batches, RATES[0], guess, deadline, course=courses[RATES[0]])
        by_rate = {RATES[0]: first}
        fresh = _fresh_starts(replay, batches, guess, deadline)
        standardised = _standardised(replay, batches, guess, deadline) if _fails(first, fresh) and _off_scale(replay, batches) else {}
        if by_rate[RATES[0]] >= PASSED and not standardised.get("standardised", 1.0) < PASSED:
            steps = _lower_rates(replay, batches, guess, deadline, by_rate, courses)
    own = min(by_rate.values())
    facts: dict[str, Any] = {"rows": sum(len(rows) for _, rows in batches), "guess": guess, "own": own, "steps": steps}
    facts["by_rate"] = {f"{rate:g}": loss for rate, loss in by_rate.items()}
    facts["courses"] = {f"{rate:g}": _thinned(course) for rate, course in courses.items() if course}
    facts["kind"] = call["kind"] if call else None
    if fresh:
        facts |= {"fresh": fresh, "fresh_median": statistics.median(fresh)}
    return facts | standardised


def _fails(own: float, fresh: list[float]) -> bool:
    return min([own, *([statistics.median(fresh)] if fresh else [])]) > FAILED


def _off_scale(replay: Replay, batches: list[tuple[int, Tensor]]) -> bool:
    """Tell whether inputs that are numbers are far from unit scale."""
    floating = (tensor.float() for number, _ in batches for tensor in inputs(replay.batches[number]) if tensor.is_floating_point())
    return any(not 1 / USUAL <= float(tensor.square().mean().sqrt()) <= USUAL for tensor in floating if tensor.numel())


def _standardised(replay: Replay, batches: list[tuple[int, Tensor]], guess: float, deadline: Deadline) -> dict[str, Any]:
    """Return the best relative loss of two fresh starts with standardised inputs, or none where time ran out."""
    found: list[float] = []
    for seed in range(2):
        if not deadline.over:
            found.append(fit(replay, replay.start(seed), batches, RATES[0], guess, deadline, change=standardise)[0])
    return {"off_scale": True} | ({"standardised": min(found)} if found else {})


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


def _loss(replay: Replay, models: list[nn.Module], batches: list[tuple[int, Tensor]], change: Change | None = None) -> Tensor:
    losses = [replay.loss(models, replay.batches[number], rows, change) for number, rows in batches]
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


def _lower_rates(
    replay: Replay,
    batches: list[tuple[int, Tensor]],
    guess: float,
    deadline: Deadline,
    by_rate: dict[float, float],
    courses: dict[float, list[float]],
) -> int:
    """Try the own start at lower rates until one passes; return how many steps the last took."""
    steps = STEPS
    for rate in RATES[1:]:
        if deadline.over:
            break
        by_rate[rate], steps = fit(replay, replay.start(), batches, rate, guess, deadline, course=courses[rate])
        if by_rate[rate] < PASSED:
            return steps
        if by_rate[rate] > by_rate[RATES[0]]:
            break  # a lower rate did worse: one lower still will as well
    return STEPS


def _fresh_starts(replay: Replay, batches: list[tuple[int, Tensor]], guess: float, deadline: Deadline) -> list[float]:
    """Return the best relative losses of fresh starts until more than half agree; those that fail get a second, lower rate at the end."""
    losses: list[float] = []
    for seed in range(STARTS):
        models = replay.start()
        if deadline.over or not all(reinitialise_seeded(model, seed) for model in models):
            break
        losses.append(fit(replay, models, batches, RATES[0], guess, deadline)[0])
        passed = sum(loss < FAILED for loss in losses)
        if 2 * max(passed, len(losses) - passed) > STARTS:
            break  # on which side the median lies is settled
    for seed, loss in enumerate(losses):
        if loss < FAILED or statistics.median(losses) < FAILED or deadline.over:
            continue
        losses[seed] = min(loss, fit(replay, replay.start(seed), batches, RATES[1], guess, deadline)[0])
    return losses


def _thinned(course: list[float]) -> list[float]:
    """Keep at most some forty losses of a course, the first and the last among them."""
    every = math.ceil(len(course) / _DRAWN)
    return [*course[:-1:every], course[-1]]


def reinitialise_seeded(model: nn.Module, seed: int) -> bool:
    """Give a model a fresh start of its own seed; False where its layers do not know how."""
    torch.manual_seed(seed)
    return reinitialise(model)


def fit(
    replay: Replay,
    models: list[nn.Module],
    batches: list[tuple[int, Tensor]],
    rate: float,
    guess: float,
    deadline: Deadline,
    change: Change | None = None,
    course: list[float] | None = None,
) -> tuple[float, int]:
    """Minimise the loss of some rows, their inputs changed or not, with Adam; return the best relative loss and the steps taken.

    Args:
        course: gets the relative loss of each step.
    """
    parameters = [parameter for model in models for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate)
    best, since, steps = math.inf, 0, 0
    for _ in range(STEPS):
        steps += 1
        optimizer.zero_grad()
        loss = _loss(replay, models, batches, change)
        relative = float(loss.detach()) / guess
        if course is not None:
            course.append(relative)
        if relative < 0.99 * best:
            best, since = relative, 0
        since += 1
        if best < PASSED or not math.isfinite(relative) or since > _PATIENCE or deadline.over:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return best, steps
