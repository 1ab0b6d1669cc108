"""A plateau, then a sudden drop to another level.

What you see
------------
For a fifth of the run and more the loss hardly moves; then it falls at once and stays there.

Why it happens
--------------
A poor start out of which the weights find their way late, or a schedule whose change (warm-up, decay, unfreezing) sets in at that step.

How it is told apart
--------------------
The drop takes two fortieths of the run at most, more than a tenth of the level, and lasts. Where the logged rate falls at the same step
the drop is the schedule's usual effect and nothing is said. Where the validation does not fall with it, the training data became easier
at that step (augmentation switched off), which is no fault either.

What to do
----------
Look at what changes at that step. If it is the rate: lower it earlier, the plateau was time lost. If nothing is: a better start
(warm-up, initialisation, normalised inputs) avoids the plateau.

When this is wrong
------------------
Some tasks are learnt all at once after a long while, with nothing to mend.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.curves import objective
from lossdoctor.derive.drops import falls_with, largest_drop
from lossdoctor.derive.unseen import field_series

LEAST_VALUES = 20
RATE_FELL = 0.3  # a schedule's step divides by two or more; a cosine moves less within so short a time
ALONG = 0.4  # of the training loss's drop that the validation must share


def detect(training: Training) -> Detection | None:
    """Look for the largest lasting drop behind a plateau that no rate and no easier data explain."""
    loss = training.series("loss").finite()
    if len(loss) < LEAST_VALUES or objective(training) != "plain":
        return None
    drop = largest_drop(loss)
    if drop is None or falls_with(training.signals.get("lr", Series.of([])), drop) > RATE_FELL:
        return None
    held_out = field_series(training.rows.get("validation", []), "loss")
    if len(held_out) >= 4 and falls_with(held_out, drop) < ALONG * drop.share:
        return None
    seen = f"{drop.before:.4g} to {drop.after:.4g} ({-drop.share:+.0%}) within steps {drop.begins} to {drop.ends}"
    note = "the rate is not logged: a schedule may have set in" if "lr" not in training.signals else "the rate did not fall there"
    return Detection(0.85, (Evidence("loss", (drop.begins, drop.ends), seen, "a steady fall", note),))


def _run(values: list[float], held_out: list[float] | None = None, rates: list[float] | None = None) -> Training:
    signals = {"loss": Series.of(values)} | ({"lr": Series.of(rates)} if rates else {})
    rows = {"validation": [Row(i, {"loss": value}) for i, value in enumerate(held_out)]} if held_out else {}
    return Training(signals=signals, rows=rows)


_PLATEAU = [2.0, 1.5, 1.2, 1.0, 0.9, 0.82, *[0.72, 0.71] * 10, *[0.48, 0.47] * 8]
_START = [*[2.31, 2.30] * 10, 1.4, *[0.9, 0.88] * 8]

FAULT = Fault(
    code="CUR005",
    slug="plateau-then-drop",
    title="Plateau, then a sudden drop",
    detect=detect,
    needs=("loss",),
    fix="Look at what changes at that step; lower the rate earlier, or give the run a better start.",
    severity="advice",
    examples=(
        Example("sick", _run(_PLATEAU), "a plateau that an unseen schedule ends"),
        Example("sick", _run(_PLATEAU, [value + 0.05 for value in _PLATEAU]), "the validation falls with it"),
        Example("sick", _run(_START, rates=[0.1] * len(_START)), "a plateau at the start, the rate stays"),
        Example("healthy", _run([2.0 * 0.93**i + 0.3 for i in range(40)]), "a steady fall"),
        Example("healthy", _run([0.5, 0.49] * 20), "a level line"),
        Example("look-alike", _run(_PLATEAU, rates=[0.1] * 26 + [0.01] * 16), "the rate falls at that step"),
        Example("look-alike", _run(_PLATEAU, [0.9] * len(_PLATEAU)), "augmentation is switched off"),
        Example("look-alike", _run([*_PLATEAU[:30], *[0.72, 0.71] * 6]), "a drop that does not last"),
    ),
)
