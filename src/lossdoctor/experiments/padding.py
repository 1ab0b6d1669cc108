"""Do the places that only fill up short rows take part? Their embedding is moved: what belongs to real tokens must stay as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lossdoctor.experiments.met import meeting
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.respond import Response, scale
from lossdoctor.record.capture import Batch, inputs

_LEAST_LENGTH, _LEAST_ROWS = 4, 4
_VARIED = 3  # lengths that must occur
_LEAST_SHARE = 0.05  # of the places that are filling


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far outputs of real tokens move with the filling, and how much of the loss it makes up.

    Returns:
        `token` (that fills), `end` (`right` or `left`), `share` (of the places), `moved` (largest change of an output that belongs to a
        real token, or to a row, in spreads of the outputs; None where no embedding holds the token), `attends` (whether the model has
        attention), `positions` (whether outputs belong to places), `counted` (share of the targets that count which lie on filling; None
        where targets do not belong to places).
    """
    batch, ids = _filled(replay)
    token, end, filling = _filling(ids)
    facts: dict[str, Any] = {"token": token, "end": end, "share": float(filling.double().mean())}
    models = replay.start()
    facts["attends"] = any(isinstance(part, nn.MultiheadAttention) for model in models for part in model.modules()) or _scores(
        replay, batch
    )
    facts |= _moved(replay, batch, ids, token, filling)
    return facts | {"counted": _counted(replay, models, batch, filling)}


def _filled(replay: Replay) -> tuple[Batch, Tensor]:
    for batch in replay.batches[:8]:
        for tensor in inputs(batch):
            whole = not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.dim() == 2
            if whole and len(tensor) == batch.rows >= _LEAST_ROWS and tensor.shape[1] >= _LEAST_LENGTH and _lengths(tensor) is not None:
                return batch, tensor
    raise ReplayRefused("no token fills up short rows")


def _lengths(ids: Tensor) -> tuple[int, str, Tensor] | None:
    """Find the token that most rows end with, or begin with, in runs of several lengths."""
    for end, turned in (("right", ids.flip(1)), ("left", ids)):
        token = int(turned[:, 0].mode().values)
        runs = (turned == token).long().cumprod(1).sum(1)
        inside = ((turned == token).sum(1) - runs).sum()  # the filling stands nowhere else
        many = float(runs.sum()) > _LEAST_SHARE * ids.numel()
        if many and len(set(runs.tolist())) >= _VARIED and int(inside) == 0 and int(runs.max()) < ids.shape[1]:
            return token, end, runs
    return None


def _filling(ids: Tensor) -> tuple[int, str, Tensor]:
    found = _lengths(ids)
    assert found is not None
    token, end, runs = found
    places = torch.arange(ids.shape[1])
    filling = places[None] >= ids.shape[1] - runs[:, None] if end == "right" else places[None] < runs[:, None]
    return token, end, filling


def _moved(replay: Replay, batch: Batch, ids: Tensor, token: int, filling: Tensor) -> dict[str, Any]:
    """Move the filling's embedding and return how far outputs follow that are not the filling's own."""
    response = Response(replay, batch, 0)
    before = next((out for out in response.outputs if len(out) == len(filling)), None)
    if before is None:
        return {"moved": None, "positions": False}
    place = next(i for i, out in enumerate(response.outputs) if out is before)
    after = response.with_token(token, ids)
    if after is None:
        return {"moved": None, "positions": False}
    change = (after[place] - before).abs() / scale(before)
    positions = before.dim() > 2 and before.shape[1] == filling.shape[1]
    real = change[~filling] if positions else change
    return {"moved": float(real.max()) if real.numel() else None, "positions": positions}


def _scores(replay: Replay, batch: Batch) -> bool:
    """Tell whether a softmax over all places, or torch's own attention, is called within the model."""
    called: list[str] = []
    kept = {name: getattr(nn.functional, name) for name in ("scaled_dot_product_attention", "softmax")}
    tensor_softmax = torch.Tensor.softmax

    def spy(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if name.startswith("scaled") or (isinstance(result, Tensor) and result.dim() >= 3 and result.shape[-1] == result.shape[-2]):
                called.append(name)
            return result

        return call

    for name, function in kept.items():
        setattr(nn.functional, name, spy(name, function))
    torch.Tensor.softmax = spy("softmax", tensor_softmax)  # type: ignore[method-assign]
    plain, torch.softmax = torch.softmax, spy("softmax", torch.softmax)
    try:
        Response(replay, batch)
    finally:
        for name, function in kept.items():
            setattr(nn.functional, name, function)
        torch.Tensor.softmax = tensor_softmax  # type: ignore[method-assign]
        torch.softmax = plain
    return bool(called)


def _counted(replay: Replay, models: list[nn.Module], batch: Batch, filling: Tensor) -> float | None:
    """Return which share of the targets that count lies on filling."""
    try:
        met = meeting(replay, models, batch)
    except ReplayRefused:
        return None
    target = met.target.detach().cpu()
    if target.is_floating_point() or met.kind not in ("cross_entropy", "nll_loss") or met.target.numel() != filling.numel():
        return None
    ignore = met.ignored
    kept = target.reshape(filling.shape) != ignore
    return float((filling & kept).sum() / kept.sum().clamp_min(1))
