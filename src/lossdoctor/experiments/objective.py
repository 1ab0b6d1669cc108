"""What does the loss ask for? Whether outputs can reach their targets, are pulled towards them, and whether it grows with the batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.met import Met, meeting, pull
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, without_dropout
from lossdoctor.experiments.terms import name_of, terms_of, value_of_term
from lossdoctor.record.capture import Batch
from lossdoctor.record.probes.nodes import base_name, maker

# The smallest and largest value that a last operation can give.
RANGES = {
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Hardsigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Hardtanh": (-1.0, 1.0),
    "Relu": (0.0, math.inf),
    "Softplus": (0.0, math.inf),
    "Exp": (0.0, math.inf),
    "Elu": (-1.0, math.inf),
    "LogSigmoid": (-math.inf, 0.0),
    "LogSoftmax": (-math.inf, 0.0),
}
_EDGE = 0.01  # of the targets' spread: a target at the end of a range counts as reached


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what the last operation can reach, which way the outputs go as the loss falls, and how the loss answers to the batch's size.

    Returns:
        `kind` (of the loss; empty where written by hand), `calls`, `others` (see `met.Met`); `last` (operation that made the outputs),
        `low`, `high` (its range), `columns` (outputs for each target), `beyond` (share of targets outside of the range), `floor` (mean
        square of their distance to it over the targets' variance), `still` (share of output columns that are the same for every row);
        `pull` (cosine between where the loss pulls the outputs and where the targets are); `fractional` (share of the targets of a cross
        entropy that are neither yes nor no, so that it never gets to zero); `loss`; `grows` (the loss over the mean of its halves: 2 for
        a sum over rows), `terms` (the same for each term).
    """
    batch = max(replay.batches[:8], key=lambda each: each.rows)
    facts: dict[str, Any] = {"rows": batch.rows}
    models = replay.start()
    with without_dropout(models):
        facts |= _growth(replay, models, batch)
        try:
            met = meeting(replay, models, batch)
        except ReplayRefused as refusal:
            return facts | {"reason": str(refusal)}
        facts |= {"kind": met.kind, "calls": met.calls, "others": met.others, "loss": float(met.loss.detach()), **_reach(met)}
        facts |= {"pull": pull(met), "fractional": _fractional(met)}
    return facts


def _reach(met: Met) -> dict[str, Any]:
    node = maker(met.output)
    last = base_name(node) if node is not None else ""
    low, high = RANGES.get(last, (-math.inf, math.inf))
    if last in ("Hardtanh", "Clamp", "ClampMin", "ClampMax"):
        low, high = _limits(node)
    values = met.output.detach().double().cpu()
    rows = values.movedim(1, -1).reshape(-1, values.shape[1]) if values.dim() > 1 else values.reshape(-1, 1)
    facts: dict[str, Any] = {"last": last, "low": low, "high": high, "columns": max(1, met.output.numel() // max(1, met.target.numel()))}
    facts["still"] = float((rows == rows[:1]).all(0).double().mean()) if len(rows) > 1 else 0.0
    wanted = met.target.detach().double().cpu().flatten()
    spread = float(wanted.std()) if wanted.numel() > 1 else 0.0
    if facts["columns"] > 1 or not spread > 0 or not bool(torch.isfinite(wanted).all()):
        return facts | {"beyond": None, "floor": None}
    away = (low - wanted).clamp_min(0) + (wanted - high).clamp_min(0) if math.isfinite(high) else (low - wanted).clamp_min(0)
    if not math.isfinite(low):
        away = (wanted - high).clamp_min(0) if math.isfinite(high) else torch.zeros_like(wanted)
    return facts | {"beyond": float((away > _EDGE * spread).double().mean()), "floor": float(away.square().mean()) / spread**2}


def _fractional(met: Met) -> float:
    """Return the share of targets between yes and no; of classes mixed in one row (mixup, a teacher's answers), the share of such rows."""
    target = met.target.detach()
    between = (target > _EDGE) & (target < 1 - _EDGE)
    if met.kind == "cross_entropy" and target.is_floating_point() and target.shape == met.output.shape and target.dim() > 1:
        between = between.any(1)
    elif "binary_cross_entropy" not in met.kind:
        return 0.0
    return float(between.double().mean())


def _limits(node: Any) -> tuple[float, float]:
    """Return the limits that a clamping operation was given; none where this torch does not keep them."""
    kept = [[getattr(node, f"_saved_{name}", None) for name in (f"{end}_val", end)] for end in ("min", "max")]
    low, high = (next((float(each) for each in pair if isinstance(each, (int, float))), None) for pair in kept)
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _growth(replay: Replay, models: list[nn.Module], batch: Batch) -> dict[str, Any]:
    """Compare a batch's loss with those of its halves, the whole and term by term."""
    if batch.rows < 2:
        return {"grows": None, "terms": []}
    numbers = terms_of(batch.program)
    pieces = list(torch.split(torch.arange(batch.rows // 2 * 2), batch.rows // 2))
    try:
        with torch.no_grad():
            whole = _ratio([replay.loss(models, batch, rows) for rows in (torch.cat(pieces), *pieces)])
            each = [
                _ratio([value_of_term(replay, models, batch, number, rows) for rows in (torch.cat(pieces), *pieces)]) for number in numbers
            ]
    except (RuntimeError, IndexError, ValueError):  # sizes of the batch stand in the program
        return {"grows": None, "terms": []}
    names = [name_of(batch.program, number) for number in numbers]
    return {"grows": whole, "terms": [{"operation": name, "grows": ratio} for name, ratio in zip(names, each, strict=True)]}


def _ratio(values: list[Tensor]) -> float | None:
    whole, *halves = (float(value.sum()) for value in values)
    mean = sum(halves) / len(halves)
    return whole / mean if abs(mean) > 1e-12 and math.isfinite(mean) else None
