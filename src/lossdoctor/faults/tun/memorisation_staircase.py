"""The training loss steps down at each epoch, or goes to nothing: the examples are memorised.

What you see
------------
Within an epoch the loss is level, at the first batch of the next it falls at once; after some epochs it is almost zero.

Why it happens
--------------
A large model learns single examples by heart in one pass. The next pass over the same examples finds them known.

How it is told apart
--------------------
At the turns of the epochs the loss falls by far more than within them, again and again. Or the loss ends below a hundredth of its start
after several epochs, with no held-out loss beside it. A rate that falls at the turns of epochs makes steps as well; then nothing is said.

What to do
----------
Hold some data out and take the checkpoint with the best score on them: often after one to three epochs. More data, or weights that
adapt less, help more than a longer run.

When this is wrong
------------------
Where the examples are all there is (a language of formulas, a fixed table), knowing them by heart is the aim.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Floats, Row, Series, Training
from lossdoctor.derive.curves import objective, shape
from lossdoctor.derive.noise import noise_floor

# Starting values.
LEAST_TURNS, LEAST_INSIDE = 2, 5  # epochs' turns, and values within each epoch
STEP = 0.08  # of the level: a step at a turn
OUTSIDE = 3.0  # times what the loss loses within an epoch
NOTHING, LEAST_EPOCHS = 0.01, 3.0  # of the start
LARGEST_START = 15.0  # ln of three million words


def detect(training: Training) -> Detection | None:
    """Look for steps at the turns of epochs, then for a loss that went to nothing with no validation beside it."""
    loss = training.series("loss").finite()
    if objective(training) != "plain" or len(loss) < LEAST_TURNS * LEAST_INSIDE:
        return None
    epochs = training.signals.get("epoch")
    if epochs is None or len(epochs) == 0:
        return None
    number = np.floor(epochs.values[np.searchsorted(epochs.steps, loss.steps, side="right") - 1])
    return _stairs(training, loss, number) or _nothing_left(training, loss, float(epochs.values[-1] - epochs.values[0]))


def _stairs(training: Training, loss: Series, number: Floats) -> Detection | None:
    turns = np.flatnonzero(np.diff(number) > 0) + 1
    edges = [0, *turns.tolist(), len(loss)]
    inside = [loss.values[a:b] for a, b in pairwise(edges)]
    if len(turns) < LEAST_TURNS or min(len(part) for part in inside[:-1]) < LEAST_INSIDE or _rate_steps(training, loss.steps[turns]):
        return None
    steps, slopes = [], []
    for before, after in pairwise(inside):
        if len(after) >= LEAST_INSIDE:
            width = max(2, min(len(before), len(after)) // 4)
            steps.append((np.mean(before[-width:]) - np.mean(after[:width])) / abs(np.mean(before[-width:])))
            slopes.append((np.mean(before[:width]) - np.mean(before[-width:])) / abs(np.mean(before[:width])))
    # the first epoch is learning; from the second on an epoch of a staircase is level
    inner = float(np.median(np.abs(slopes[1:]))) if len(slopes) > 1 else 0.0
    clear = len(steps) >= LEAST_TURNS and float(np.median(steps)) > max(
        STEP, OUTSIDE * inner, noise_floor(loss) / abs(float(np.median(loss.values)))
    )
    if not clear:
        return None
    seen = f"falls by {np.median(steps):.0%} at the turn of an epoch, by {inner:.0%} within one"
    return Detection(0.9, (Evidence("loss", (int(loss.steps[turns[0]]), int(loss.steps[-1])), seen, "the same fall everywhere"),))


def _rate_steps(training: Training, turns: np.ndarray) -> bool:
    rates = training.signals.get("lr", Series.of([])).finite()
    if len(rates) < 2:
        return False
    at = np.clip(np.searchsorted(rates.steps, turns), 1, len(rates) - 1)
    with np.errstate(all="ignore"):
        return float(np.median(rates.values[at] / rates.values[at - 1])) < 0.8


def _nothing_left(training: Training, loss: Series, epochs: float) -> Detection | None:
    found = shape(loss)
    if found is None or training.rows.get("validation") or epochs < LEAST_EPOCHS:
        return None
    # a loss of single answers in nats starts at ln k; larger ones are errors and penalties, which may well go to nothing
    if found.start > LARGEST_START or not 0 <= found.level < NOTHING * found.start:
        return None
    seen = f"{found.start:.4g} to {found.level:.2g} in {epochs:.0f} epochs"
    return Detection(
        0.85,
        (
            Evidence(
                "loss", (int(loss.steps[0]), int(loss.steps[-1])), seen, "a loss that the held-out data share", "no held-out loss is logged"
            ),
        ),
    )


def _run(levels: list[float], inside: float = 0.0, held_out: bool = False, rates: bool = False, each: int = 10) -> Training:
    values = [level * (1 - inside * i / each) for level in levels for i in range(each)]
    epochs = [float(number) for number in range(len(levels)) for _ in range(each)]
    signals = {"loss": Series.of(values), "epoch": Series.of(epochs)}
    if rates:
        signals["lr"] = Series.of([0.5**number for number in epochs])
    rows = {"validation": [Row(len(values) - 1, {"loss": 1.0})]} if held_out else {}
    return Training(signals=signals, rows=rows)


FAULT = Fault(
    code="TUN003",
    slug="memorisation-staircase",
    title="Loss steps down at each epoch: memorising",
    detect=detect,
    needs=("loss", "epoch"),
    fix="Hold some data out and keep the checkpoint that scores best on them; fewer epochs, more data.",
    severity="advice",
    examples=(
        Example("sick", _run([1.8, 1.2, 0.6, 0.3]), "stairs"),
        Example("sick", _run([1.8, 1.3, 0.9], inside=0.02, held_out=True), "stairs, with validation"),
        Example("sick", _run([4.0, 2.0, 1.0, 0.4, 0.1, 0.02, 0.003], inside=0.6), "nothing left after seven epochs, no validation"),
        Example("healthy", _run([2.0, 1.6, 1.28, 1.02], inside=0.2), "a steady fall"),
        Example("healthy", _run([0.7, 0.69, 0.7, 0.69]), "a level line"),
        Example("look-alike", _run([1.8, 1.2, 0.6, 0.3], rates=True), "the rate falls at the turns"),
        Example(
            "look-alike",
            _run([4.0, 2.0, 1.0, 0.4, 0.1, 0.02, 0.003], inside=0.6, held_out=True),
            "nothing left, with a validation beside it",
        ),
        Example("look-alike", _run([9000.0, 2000.0, 100.0, 4.0, 0.1, 0.02, 0.003], inside=0.6), "a squared error that goes to nothing"),
        Example("known miss", _run([1.8, 1.2]), "one turn only"),
    ),
)
