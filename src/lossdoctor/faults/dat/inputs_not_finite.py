"""NaN, infinity or a stand-in for a missing value reaches the model.

What you see
------------
The loss is NaN from the step at which a certain batch came, and stays so; or, with a stand-in such as -999 or 1e9 for missing values,
it starts and stays far too high.

Why it happens
--------------
Missing values were not filled, a division by a standard deviation of zero made NaN, or a code for "missing" was taken for a
measurement.

How it is told apart
--------------------
The raw batch is looked at before the model. If it is not finite, and the loss is not finite later, the data are the cause; with
finite data the cause is in model, loss or rate. Where the loss stays finite, the model deals with missing values itself. A float
input of nothing but 0 and -inf is an attention mask. A stand-in is one value that repeats in its column, twenty standard deviations
or more from all others, which themselves vary; rare ones among zeros and padding are not.

What to do
----------
Find the rows with `torch.isfinite(inputs).all(-1)` and fill or drop them; divide by `std.clamp_min(1e-6)`; replace codes for
missing values before scaling.

When this is wrong
------------------
A measurement that really takes one value far from the rest, again and again. A single bad row that no sampled batch held is not
seen.
"""

from __future__ import annotations

from math import isfinite, nan
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.outcome import broken_from

# Not finite in and not finite out is certain. A stand-in is found by its distance: likely, in many batches.
CERTAIN, LIKELY, UNSURE = 1.0, 0.85, 0.6
# Share of sampled batches that must hold a stand-in before it is a habit of the data and not a freak of one batch (starting value).
LEAST_SHARE = 0.25


def detect(training: Training) -> Detection | None:
    """Look for values in the raw batches that no measurement is."""
    rows = training.table("batch")
    return _not_finite(training, rows) or _stand_in(rows)


def _not_finite(training: Training, rows: list[Row]) -> Detection | None:
    found = [(row, share) for row in rows if (share := _bad_share(row)) > 0]
    broken = broken_from(training.signals.get("loss", Series.of([])))
    if not found or broken is None:
        return None
    first, share = found[0]
    # A batch that is sampled after the loss broke tells what the data hold, and that it came before is likely: data come again.
    strength = CERTAIN if first.step <= broken else LIKELY
    at = min(first.step, broken)
    seen = f"{share:.2g} of the values of a batch"
    evidence = Evidence("batch", (at, found[-1][0].step), seen, "0", f"NaN or infinite in {len(found)} of {len(rows)} sampled batches")
    after = Evidence("loss", (broken, broken), "not finite", "a finite number", "the loss breaks")
    return Detection(strength, (evidence, after), where=training.where("loader"))


def _bad_share(row: Row) -> float:
    shares = [1.0 - float(item["finite"]) for item in row.get("inputs") or () if _is_measured(item)]
    return max((share for share in shares if isfinite(share)), default=0.0)


def _is_measured(item: Any) -> bool:
    """Leave out whole numbers and additive attention masks, which hold nothing but 0 and -inf."""
    finite = item.get("finite")
    if finite is None or item.get("integer"):
        return False
    return not (0 < finite < 1 and item.get("min") == 0 and item.get("max") == 0)


def _stand_in(rows: list[Row]) -> Detection | None:
    items = [(row, item) for row in rows for item in row.get("inputs") or () if (item.get("sentinel_share") or 0) > 0]
    held = [(row, item) for row, item in items if item.get("sentinel") is not None]
    if not held or len({row.step for row, _ in held}) < LEAST_SHARE * len(rows):
        return None
    values = {item["sentinel"] for _, item in held}
    first, item = held[0]
    share = item["sentinel_share"]
    note = f"in {len(held)} of {len(rows)} sampled batches, twenty standard deviations or more from all other values"
    evidence = Evidence("batch", (first.step, held[-1][0].step), f"{item['sentinel']:g} in {share:.2g} of the values", "no stand-ins", note)
    return Detection(LIKELY if len(values) == 1 and len(rows) > 1 else UNSURE, (evidence,), fix=_FILL)


_FILL = "Replace the code for missing values before the data are scaled: fill it with the column's mean and add a column that says so."


def _run(loss: list[float], *batches: dict[str, Any]) -> Training:
    common = {"finite": 1.0, "integer": False, "min": -3.0, "max": 3.0, "sentinel": None, "sentinel_share": 0.0}
    rows = [Row(i, {"inputs": [{**common, **fields}], "target": None}) for i, fields in enumerate(batches)]
    return Training(signals={"loss": Series.of(loss)}, rows={"batch": rows})


_HOLE = {"finite": 0.97}
_CODE = {"sentinel": -999.0, "sentinel_share": 0.02, "min": -999.0}
_MASK = {"finite": 0.5, "min": 0.0, "max": 0.0}
_SCALED = r"^(x_train, x_test = \(x_train - mean\) / std, \(x_test - mean\) / std)$"

_CODED = r"\1\ntable = x_train.view(len(x_train), -1)\ntable[::15, 2 * table.shape[1] // 3] = -9999.0"

FAULT = Fault(
    code="DAT003",
    slug="inputs-not-finite",
    title="NaN, infinity or a stand-in for missing values in the inputs",
    detect=detect,
    needs=("batch",),
    fix="Fill or drop rows that are not finite before they reach the model; divide by std.clamp_min(1e-6).",
    explains=("loss-not-finite", "lr-too-high", "inputs-unscaled", "loss-flat", "loss-diverged", "dead-units", "exploding-gradients"),
    examples=(
        Example("sick", _run([2.3, 2.2, nan, nan], {}, {}, _HOLE, {}), "a batch with NaN, the loss NaN from there"),
        Example("sick", _run([nan, nan, nan], _HOLE, _HOLE), "NaN in every batch"),
        Example("sick", _run([2.3, nan, nan, nan], {}, {}, {}, _HOLE), "seen when the data come again"),
        Example("sick", _run([900.0, 300.0, 90.0], _CODE, _CODE, _CODE), "a code for missing values"),
        Example("healthy", _run([2.3, 1.0, 0.3], {}, {}, {}), "finite inputs"),
        Example("healthy", _run([2.3, 1.0], {"integer": True, "finite": None}), "token ids"),
        Example("look-alike", _run([2.3, 1.0, 0.3], _HOLE, {}, _HOLE), "NaN that the model fills itself"),
        Example("look-alike", _run([2.3, nan, nan], {}, {}, {}), "a loss that breaks on finite data"),
        Example("look-alike", _run([2.3, nan, nan], _MASK, _MASK), "an additive attention mask"),
        Example("look-alike", _run([2.3, 1.1, 0.9, 0.4, 0.2], {}, {}, {}, {}, _CODE), "one odd batch of many"),
        Example("known miss", _run([2.3, 2.2, nan, nan], {}, {}), "the bad batch was not sampled"),
    ),
    plants=(
        Plant("middle", "data", _SCALED, r"\1\nx_train.view(len(x_train), -1)[7::50, 0] = math.nan", kinds=("scaled",)),
        Plant("severe", "data", _SCALED, r"\1\nx_train.view(len(x_train), -1)[::3, 0] = math.inf", kinds=("scaled",)),
        Plant("mild", "data", _SCALED, _CODED, kinds=("scaled",)),
    ),
    treatment=Treatment("finite_inputs", {}, moves="loss", direction="down"),
)
