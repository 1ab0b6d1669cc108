"""Sequences with a target at each position: which target belongs to which input, do outputs know what comes later, does order matter?

The inputs after a position are exchanged for those of other examples; outputs up to it must stay as they were where the
target is the next input. Inputs before the last position are put into another order; its output must change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lossdoctor.experiments.examples import rows_of
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.respond import Response, scale

_SHIFTS = (-1, 0, 1, 2, 3)
_LEAST = 4  # positions


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how targets lie to inputs, and how outputs answer to later, own and reordered inputs.

    Returns:
        `positions`; `shifts` (shift to the share of targets that equal the input so many positions later) and `chance` (that
        share for the inputs of other examples); `future` (largest change of an output up to a position, in spreads of the
        output, when everything after it is exchanged), `later` (the same of outputs after it), `own`, `past` and
        `order` (change of the last output when the inputs before it are exchanged, and when they are reordered; the latter also
        with weights that were moved: positions that start at zero are learnt).
    """
    batch = replay.batches[0]
    found = rows_of(batch)
    if found is None:
        raise ReplayRefused("no targets were found among what the loss is made of")
    target = found[1]
    sequences = [tensor for tensor in found[0] if _positions(tensor) >= _LEAST]
    given = max(sequences, key=lambda tensor: _best(tensor, target), default=None)  # of a decoder, not what is translated
    if given is None or target.dim() < 2 or target.shape[1] < _LEAST or len(given) < 2:
        raise ReplayRefused("these are no sequences with a target at each position")
    target = _like(given, target)
    facts: dict[str, Any] = {"positions": _positions(given), **_alignment(given, target)}
    for seed in (None, 0):
        response = Response(replay, batch, seed)
        answers = _answers(response, given)
        if answers is not None and answers["later"] > 0:
            return facts | answers | {"fresh": seed is not None}
    return facts


def _positions(tensor: Tensor) -> int:
    return int(tensor.shape[1]) if tensor.dim() in (2, 3) else 0


def _like(given: Tensor, target: Tensor) -> Tensor:
    return target.reshape(given.shape) if given.dim() > 2 and target[0].numel() == given[0].numel() else target


def _best(given: Tensor, target: Tensor) -> float:
    return max(_alignment(given, _like(given, target))["shifts"].values(), default=0.0)


def _alignment(given: Tensor, target: Tensor) -> dict[str, Any]:
    """Return, for each shift, the share of targets that equal the input so many positions later; of other examples' inputs, chance."""
    if given.dim() != target.dim():
        return {"shifts": {}, "chance": 0.0}
    shares = {shift: _share(given, target, shift) for shift in _SHIFTS}
    best = max(shares, key=lambda shift: shares[shift])
    return {"shifts": {str(shift): share for shift, share in shares.items()}, "chance": _share(given.roll(1, 0), target, best)}


def _share(given: Tensor, target: Tensor, shift: int) -> float:
    length = min(given.shape[1], target.shape[1])
    first, last = max(0, -shift), min(length, given.shape[1] - shift)
    if last - first < 2:
        return 0.0
    wanted, seen = target[:, first:last], given[:, first + shift : last + shift]
    kept = wanted >= 0 if not wanted.is_floating_point() else torch.ones_like(wanted, dtype=torch.bool)  # what is ignored is negative
    return float((wanted == seen)[kept].double().mean()) if bool(kept.any()) else 0.0


def _answers(response: Response, given: Tensor) -> dict[str, float] | None:
    length = given.shape[1]
    place = next((i for i, out in enumerate(response.outputs) if _is_flat(response, given, i) is not None), None)
    if place is None:
        return None
    flat = bool(_is_flat(response, given, place))

    def changed(change: Callable[[Tensor], Tensor]) -> Tensor:
        return _by_position(response.changed(given, change)[place], given, flat)

    before = _by_position(response.outputs[place], given, flat)
    unit = scale(before)
    found = {"future": 0.0, "later": 0.0, "own": 0.0}
    for cut in sorted({length // 4, length // 2, 3 * length // 4} - {0}):
        after = changed(lambda values, cut=cut: _exchange(values, cut, length))  # type: ignore[misc]
        change = (after - before).abs() / unit
        found["future"] = max(found["future"], float(change[:, :cut].max()))
        found["later"] = max(found["later"], float(change[:, cut:].max()))
        own = changed(lambda values, cut=cut: _exchange(values, cut, cut + 1))  # type: ignore[misc]
        found["own"] = max(found["own"], float((own - before)[:, cut].abs().max()) / unit)
    past = changed(lambda values: _exchange(values, 0, length - 1))
    order = _of_last(changed(_reorder) - before) / unit
    response.shake()
    shaken = _by_position(response.outputs[place], given, flat)
    order = max(order, _of_last(changed(_reorder) - shaken) / scale(shaken))
    return found | {"past": _of_last(past - before) / unit, "order": order}


def _is_flat(response: Response, given: Tensor, place: int) -> bool | None:
    """Tell whether an output has examples and positions in one dimension, in that order; None where it has no positions.

    Which order it is shows when one example's inputs are those of another: only the rows of that example move.
    """
    output, (examples, length) = response.outputs[place], given.shape[:2]
    if output.dim() >= 2 and output.shape[:2] == given.shape[:2]:
        return False
    if not output.dim() or output.shape[0] != examples * length:
        return None
    moved = (response.changed(given, _first_as_second)[place] - output).abs().reshape(len(output), -1).amax(1)
    rows = torch.nonzero(moved > 0).flatten()
    return True if len(rows) > length // 2 and bool((rows < length).all()) else None


def _by_position(output: Tensor, given: Tensor, flat: bool) -> Tensor:
    return output.reshape(*given.shape[:2], *output.shape[1:]) if flat else output


def _first_as_second(values: Tensor) -> Tensor:
    values[0] = values[1]
    return values


def _of_last(change: Tensor) -> float:
    return float(change[:, -1].abs().max())


def _exchange(values: Tensor, start: int, stop: int) -> Tensor:
    values[:, start:stop] = values[:, start:stop].roll(1, 0)
    return values


def _reorder(values: Tensor) -> Tensor:
    values[:, :-1] = values[:, :-1].flip(1)
    return values
