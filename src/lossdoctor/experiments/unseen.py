"""Train as the script did on three quarters of the captured rows: does the loss fall on the rest, which was never trained on?

It gives an unseen loss where the script has no validation, or none on unseen rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.mistakes import mistakes
from lossdoctor.experiments.replay import Deadline, Replay, described, untouched
from lossdoctor.experiments.training import optimizer_for
from lossdoctor.record.capture import Batch
from lossdoctor.record.probes.hashes import row_hashes

STEPS = 400
LOST = 1.5  # an unseen loss so many times its best does not come back
_EVERY = 20


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the best loss on rows that were struck from training, over what guessing gives.

    Args:
        parameters: `optimizer`, `settings`, and optionally `factor` for the rate, `fresh` to start from fresh weights.

    Returns:
        `trained_rows`, `unseen_rows`, `unseen_best`, `unseen_first`, `unseen_last`, `trained_last`, `guess` (loss when guessing), `steps`;
        where `fresh`, these are of fresh weights, and `own_best` is the best of as many steps from the run's own start.
    """
    parts = [split(batch) for batch in replay.batches]
    own = _repeat(replay, replay.start(), parts, deadline.half if parameters.get("fresh") else deadline, parameters)
    course = _repeat(replay, replay.start(0), parts, deadline, parameters, own.steps) if parameters.get("fresh") else own
    batch = replay.batches[0]
    call = described(replay, own.models, batch, replay.constants(batch))
    facts: dict[str, Any] = {
        "trained_rows": sum(len(kept) for kept, _ in parts),
        "unseen_rows": sum(len(struck) for _, struck in parts),
        "steps": course.steps,
        "fresh": bool(parameters.get("fresh")),
        "own_best": min(own.unseen),
    }
    facts |= {"unseen_first": course.unseen[0], "unseen_best": min(course.unseen), "unseen_last": course.unseen[-1]}
    facts |= {"trained_last": course.trained, "guess": (call or {}).get("guess_loss")}
    return facts | {"noise": _noise(replay, course.models, parts)}


@dataclass
class _Course:
    """Hold what a repetition gave: its models, the losses on the struck rows now and then, the last training loss, its steps."""

    models: list[nn.Module]
    unseen: list[float]
    trained: float = math.nan
    steps: int = 0


def _repeat(
    replay: Replay,
    models: list[nn.Module],
    parts: list[tuple[Tensor, Tensor]],
    deadline: Deadline,
    parameters: dict[str, Any],
    steps: int = STEPS,
) -> _Course:
    optimizer = optimizer_for(models, parameters, float(parameters.get("factor", 1.0)))
    course = _Course(models, [unseen_loss(replay, models, parts)])
    usable = [number for number, (kept, _) in enumerate(parts) if len(kept)]
    for course.steps in range(1, steps + 1):
        number = usable[course.steps % len(usable)]
        optimizer.zero_grad()
        loss = replay.loss(models, replay.batches[number], parts[number][0])
        course.trained = float(loss.detach())
        if not math.isfinite(course.trained) or deadline.over:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if course.steps % _EVERY == 0:
            course.unseen.append(unseen_loss(replay, models, parts))
            if course.unseen[-1] > LOST * min(course.unseen):
                break  # the best lies behind
    return course


def split(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the rows of a batch that are trained on and those struck out, by hash: a row is struck wherever it appears."""
    given = _given(batch)
    struck = torch.from_numpy((row_hashes(given) % 4 == 0).astype("bool")) if given else torch.zeros(batch.rows, dtype=torch.bool)
    return torch.nonzero(~struck).squeeze(1), torch.nonzero(struck).squeeze(1)


def _given(batch: Batch) -> list[Tensor]:
    """Return the inputs of a batch that have a row for each example."""
    from lossdoctor.record.capture import inputs

    return [tensor for tensor in inputs(batch) if tensor.dim() and tensor.shape[0] == batch.rows]


def distinct(batches: Sequence[Batch], rows: Sequence[Tensor]) -> list[Tensor]:
    """Return, of some rows of each batch, those whose inputs did not come before: a copy tells no more than its original."""
    known: set[int] = set()
    kept = []
    for batch, places in zip(batches, rows, strict=True):
        fresh = []
        hashes = row_hashes(_given(batch))
        for place in places.tolist():
            if int(hashes[place]) not in known:
                known.add(int(hashes[place]))
                fresh.append(place)
        kept.append(torch.tensor(fresh, dtype=torch.long))
    return kept


def _noise(replay: Replay, models: list[nn.Module], parts: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return what the trained copy gets wrong on the struck rows, by how sure it was; empty where the loss is no cross entropy of rows.

    Tokens are left out: what comes next in a text is open, so that a copy may well be sure and wrong.
    """
    scores: list[Tensor] = []
    labels: list[Tensor] = []

    def watch(name: str, args: Any, kwargs: Any, result: Any) -> None:
        given, wanted = (args[index] if len(args) > index else kwargs.get(key) for index, key in enumerate(("input", "target")))
        if name in ("cross_entropy", "nll_loss") and given.dim() == 2 and wanted.dim() == 1 and len(wanted) in sizes:
            scores.append(given.float().softmax(1).cpu())
            labels.append(wanted.cpu())

    rows = distinct(replay.batches, [struck for _, struck in parts])
    sizes = {len(each) for each in rows}
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            for batch, places in zip(replay.batches, rows, strict=True):
                if len(places):
                    batch.program.run(models, replay.constants(batch, places), watch=watch)
    except (RuntimeError, IndexError, ValueError):  # sizes of the batch stand in the program
        return {}
    return mistakes(torch.cat(scores).double().numpy(), torch.cat(labels).numpy()) if scores else {}


def unseen_loss(replay: Replay, models: list[nn.Module], parts: list[tuple[Tensor, Tensor]]) -> float:
    """Return the mean loss on the struck rows of up to eight batches, in evaluation mode."""
    modes = [{name: part.training for name, part in model.named_modules()} for model in models]
    total, count = 0.0, 0
    with torch.no_grad(), untouched():
        torch.set_grad_enabled(False)
        for model in models:
            model.eval()
        for number in range(0, len(parts), max(1, len(parts) // 8)):
            struck = parts[number][1]
            if len(struck):
                total += float(replay.loss(models, replay.batches[number], struck)) * len(struck)
                count += len(struck)
    for model, mode in zip(models, modes, strict=True):
        for name, part in model.named_modules():
            part.training = mode[name]
    return total / count if count else math.nan
