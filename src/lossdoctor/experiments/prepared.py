"""Do the inputs carry anything? How far rows differ, and where that is little, a short training with standardised inputs."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, described
from lossdoctor.experiments.standardise import standardise
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.record.capture import inputs

THIN, FLAT = 0.1, 0.05  # spread between rows, and that over the mean, from which on it is tried (field guide, row 2: below 0.05)
STEPS = 120
_SECONDS = 2.5  # of each training
# Counts of words: values that are not zero are few, and of the size of one (starting values).
SPARSE, USUAL = 0.3, 0.3


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far rows differ, and how far the loss falls with inputs as they are and standardised.

    Returns:
        `rows`; `between` (root mean square over features of their spread over rows), `centre` (root mean square of their means); where
        `between` is small: `own` and `standardised` (loss at the end of some steps), `start`, `guess` (None where not known), `steps`.
    """
    table = _rows(replay)
    between = float(table.var(0, unbiased=False).mean().sqrt())
    facts: dict[str, Any] = {"rows": len(table), "between": between, "centre": float(table.mean(0).square().mean().sqrt())}
    if between == 0 or ((between > THIN or _sparse(table)) and between > FLAT * facts["centre"]):
        return facts
    courses = [_course(replay, parameters, deadline.within(_SECONDS), change) for change in (None, standardise)]
    steps = min(len(each) for each in courses)
    own, other = (statistics.median(each[max(0, steps - 10) : steps]) for each in courses)
    batch = replay.batches[0]
    call = described(replay, replay.start(), batch, replay.constants(batch)) or {}
    return facts | {"own": own, "standardised": other, "start": courses[0][0], "guess": call.get("guess_loss"), "steps": steps}


def _sparse(table: Tensor) -> bool:
    """Tell whether most values are zeros and the others of usual size, as counts of words are: their small spread is no matter of scale."""
    others = table[table != 0]
    return len(others) < SPARSE * table.numel() and float(others.square().mean().sqrt()) > USUAL


def _rows(replay: Replay) -> Tensor:
    given = [next((each for each in inputs(batch) if each.dim() and len(each) == batch.rows), None) for batch in replay.batches]
    if given[0] is None or not given[0].is_floating_point():
        raise ReplayRefused("the inputs are no numbers")
    shape = given[0].shape[1:]
    return torch.nan_to_num(torch.cat([each.flatten(1).double() for each in given if each is not None and each.shape[1:] == shape]))


def _course(replay: Replay, parameters: dict[str, Any], deadline: Deadline, change: Any) -> list[float]:
    torch.manual_seed(0)
    models = replay.start()
    optimizer = optimizer_for(models, parameters, 1.0)
    losses: list[float] = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = replay.loss(models, replay.batches[step % len(replay.batches)], change=change)
        losses.append(float(loss.detach()))
        if deadline.over:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return losses
