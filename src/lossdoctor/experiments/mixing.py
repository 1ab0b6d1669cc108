"""Do the examples of a batch influence each other? One example's input is exchanged; the outputs of the others must stay.

Dropout is off and batch norm uses fixed statistics, which mix a batch by design.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lossdoctor.experiments.examples import rows_of
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused
from lossdoctor.experiments.respond import ROUNDING, Response, scale

_TRIED = 6  # examples that are exchanged, one after the other


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how far outputs move when another example's input is exchanged.

    Returns:
        `rows`; `own` and `others` (largest change of the exchanged example's output, and of the others', in spreads of the
        output); `touched` (share of the others that moved); `later_only` (whether only examples after the exchanged
        one moved); `recurrent` (kind of a recurrent layer, or None); `related` (whether the model is told which
        examples belong together: a graph); `unequal` (how far outputs differ where all examples are the same; 0 where the
        model draws); `sure` (whether targets show that the first axis holds the examples).
    """
    batch = replay.batches[0]
    found = rows_of(batch)
    for seed in (None, 0):
        response = Response(replay, batch, seed)
        given = next((tensor for tensor in response.given if len(tensor) == batch.rows), None)
        output = next((out for out in response.outputs if len(out) == batch.rows), None)
        if given is None or output is None or batch.rows < 2:
            raise ReplayRefused("the model does not return one output for each example")
        facts = _influence(response, given, deadline)
        facts["unequal"] = 0.0 if response.draws else _unequal(response, given)
        if facts["own"] > ROUNDING:
            break
    models = replay.start()
    recurrent = next((type(part).__name__ for model in models for part in model.modules() if isinstance(part, nn.RNNBase)), None)
    facts |= {"rows": batch.rows, "recurrent": recurrent, "related": _related(models, response.given, batch.rows)}
    return facts | {"sure": found is not None and _one_target_each(found[1])}


def _influence(response: Response, given: Tensor, deadline: Deadline) -> dict[str, Any]:
    rows = len(given)
    place = next(i for i, out in enumerate(response.outputs) if len(out) == rows)
    before = response.outputs[place]
    unit = scale(before)
    found: dict[str, Any] = {"own": 0.0, "others": 0.0, "touched": 0.0, "later_only": True}
    for row in sorted({round(i * (rows - 1) / (_TRIED - 1)) for i in range(_TRIED)}):
        if deadline.over:
            break
        after = response.changed(given, lambda values, row=row: _exchange(values, row))[place]  # type: ignore[misc]
        change = (after - before).abs().reshape(rows, -1).amax(1) / unit
        found["own"] = max(found["own"], float(change[row]))
        change[row] = 0.0
        moved = change > ROUNDING
        found["others"] = max(found["others"], float(change.max()))
        found["touched"] = max(found["touched"], float(moved.double().sum() / (rows - 1)))
        found["later_only"] = found["later_only"] and not bool(moved[:row].any())
    found["later_only"] = found["later_only"] and found["touched"] > 0
    return found


def _unequal(response: Response, given: Tensor) -> float:
    """Return how far outputs differ where the examples do not: their place in the batch counts."""
    after = next(out for out in response.alike(len(given)) if len(out) == len(given))
    before = next(out for out in response.outputs if len(out) == len(given))
    return float((after - after[:1]).abs().max()) / scale(before)


def _exchange(values: Tensor, row: int) -> Tensor:
    """Put the example farthest away in its place: the next one may be equal."""
    flat = values.reshape(len(values), -1).double()
    values[row] = values[int((flat - flat[row]).abs().sum(1).argmax())]
    return values


def _related(models: list[nn.Module], given: list[Tensor], rows: int) -> bool:
    """Tell whether an input or a buffer relates examples to one another: a square or sparse matrix, or pairs of indices."""
    held = [buffer for model in models for buffer in model.buffers()]
    return any(tensor.is_sparse or tensor.shape == (rows, rows) or _pairs(tensor, rows) for tensor in (*given, *held))


def _pairs(tensor: Tensor, rows: int) -> bool:
    return not tensor.is_floating_point() and tensor.dim() == 2 and tensor.shape[0] == 2 != rows


def _one_target_each(target: Tensor) -> bool:
    """Tell whether there is one target for each entry of the first axis: then that axis holds the examples."""
    return target.dim() == 1 or target[0].numel() == 1
