"""The routine before the long run, for a model, a loader and a loss that are at hand: in a notebook, in a test."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.core.errors import LossdoctorError, UsageError
from lossdoctor.shown import Report

if TYPE_CHECKING:
    from lossdoctor.core.run import Run
    from lossdoctor.record import Recorder

STEPS = 60  # of the training that is watched: rows for a baseline, and the first course of the loss
RATE = 1e-3  # AdamW's, as the reference network's
_LONGEST = 8.0


def checkup(
    make_model: Any,
    loader: Iterable[Any],
    loss_fn: Any,
    *,
    validation: Iterable[Any] | None = None,
    seconds: float = 40.0,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Report:
    """Check model, data and loss before the long run; the model, the loader and the random state are left as they were.

    A fresh model is trained for some steps under watch, then all experiments are done on what was seen.

    Args:
        make_model: returns a fresh model; a model itself is copied.
        loader: gives pairs of inputs and target; a dict of inputs is handed over by name.
        loss_fn: takes outputs and target and returns one number.
        validation: another loader, whose data are not trained on.
        seconds: what all of it may take.
        select: codes, families or slugs to look for; all where empty.
        ignore: codes, families or slugs to leave out.

    Raises:
        UsageError: where the loader gives nothing, the model or the loss fails, or returns what it should not.

    Example:
        >>> import torch
        >>> rows = torch.randn(200, 4)
        >>> data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=20)
        >>> report = checkup(lambda: torch.nn.Linear(4, 1), data, torch.nn.functional.mse_loss)
        >>> [each["status"] for each in report.experiments if each["name"] == "memorise"]
        ['done']
    """
    from lossdoctor.diagnose import diagnose
    from lossdoctor.experiments.replay import untouched
    from lossdoctor.record import arm

    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as scratch, untouched():
        recorder = arm(Path(scratch) / "runs", script="checkup")
        try:
            _train(make_model, loader, loss_fn, validation, until)
        finally:
            recorder.stop("stopped", 0)
        run = _work_up(recorder, until)
    return Report.of(diagnose(run, select=select, ignore=ignore, mode="check"))


def _train(make_model: Any, loader: Iterable[Any], loss_fn: Any, validation: Iterable[Any] | None, until: float) -> None:
    """Train as a plain loop does, for some steps or a third of the time, and validate once."""
    import torch

    from lossdoctor.experiments.captured import first_batches, forward, made

    model = made(make_model).train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=RATE)
    stop = time.monotonic() + (until - time.monotonic()) / 3
    steps = 0
    while steps < STEPS and time.monotonic() < stop:
        for batch in first_batches(loader, STEPS - steps):
            steps += 1
            loss = forward(model, batch, loss_fn, steps)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if time.monotonic() >= stop:
                break
    if validation is not None:
        _validate(model.eval(), validation, loss_fn)


def _validate(model: Any, validation: Iterable[Any], loss_fn: Any) -> None:
    import torch

    from lossdoctor.experiments.captured import first_batches, pair

    with torch.no_grad():
        for number, batch in enumerate(first_batches(validation, STEPS), 1):
            given, target = pair(batch, number)
            loss_fn(model(**given) if isinstance(given, dict) else model(given), target)


def _work_up(recorder: Recorder, until: float) -> Run:
    from lossdoctor.core.store import load_run
    from lossdoctor.diagnose.plan import CHECKS, parameters
    from lossdoctor.experiments.workup import Workup

    if recorder.folder is None:
        raise LossdoctorError("nothing was recorded of the training; the temporary folder cannot be written to")
    work = Workup(recorder.captures, recorder.folder)
    lines = []
    asked = parameters(load_run(recorder.folder).trainings[0])
    for name in CHECKS:
        left = until - time.monotonic()
        if left > 0:
            lines.append(work.answer({"experiment": name, "seconds": min(left, _LONGEST), "parameters": asked}))
    (recorder.folder / "record-workup-0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_run(recorder.folder)


@dataclass(frozen=True)
class Memorised:
    """Hold how well a batch was memorised.

    Args:
        best: lowest loss over the rates.
        rate: that gave it.
        start: first loss.
        curves: rate to the loss of each step.

    Example:
        >>> Memorised(0.002, 1e-2, 1.4, {1e-2: [1.4, 0.002]}).steps
        2
    """

    best: float
    rate: float
    start: float
    curves: dict[float, list[float]] = field(repr=False)

    @property
    def steps(self) -> int:
        """How many steps the best rate was given."""
        return len(self.curves[self.rate])


def can_memorize(
    make_model: Any, batch: Any, loss_fn: Any, *, rates: Sequence[float] = (1e-2, 1e-3, 1e-4), steps: int = 300, below: float = 0.01
) -> Memorised:
    """Minimise the loss of one batch with Adam at several rates, dropout off; end early where it gets below a bound.

    Args:
        make_model: returns a fresh model; a model itself is copied.
        batch: a pair of inputs and target, 10 to 50 examples.
        loss_fn: takes outputs and target and returns one number.
        rates: tried one after the other, each from the same start.
        steps: for each rate, at most.
        below: loss at which the batch counts as memorised.

    Raises:
        UsageError: where model, batch or loss is not what it should be.

    Example:
        >>> import torch
        >>> batch = torch.randn(16, 8), torch.randint(0, 4, (16,))
        >>> make = lambda: torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        >>> can_memorize(make, batch, torch.nn.functional.cross_entropy).best < 0.01
        True
    """
    import copy

    from lossdoctor.experiments.captured import made
    from lossdoctor.experiments.replay import untouched, without_dropout

    if not rates or steps < 1:
        raise UsageError("can_memorize: at least one rate and one step are needed")
    with untouched():
        model = made(make_model).train()
        curves: dict[float, list[float]] = {}
        for rate in rates:
            fresh = copy.deepcopy(model)
            with without_dropout([fresh]):
                curves[rate] = _minimise(fresh, batch, loss_fn, rate, steps, below)
            if min(curves[rate]) < below:
                break
    best = min(curves, key=lambda rate: _lowest(curves[rate]))
    return Memorised(_lowest(curves[best]), best, curves[best][0], curves)


def _lowest(losses: Sequence[float]) -> float:
    return min((loss for loss in losses if math.isfinite(loss)), default=math.inf)


def _minimise(model: Any, batch: Any, loss_fn: Any, rate: float, steps: int, below: float) -> list[float]:
    import torch

    from lossdoctor.experiments.captured import forward

    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=rate)
    losses: list[float] = []
    for _ in range(steps):
        loss = forward(model, batch, loss_fn)
        losses.append(float(loss.detach()))
        if losses[-1] < below or not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return losses
