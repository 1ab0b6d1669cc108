"""Validation data come from another distribution than training data.

What you see
------------
Training goes well and validation is bad from the first pass on; some classes are never right in validation.

Why it happens
--------------
Sorted data were split without shuffling: the last rows, and with them the last classes, all went into validation; or both parts were
gathered in different ways.

How it is told apart
--------------------
Targets of training and of validation are counted. Classes that make up much of validation and were never trained on cannot be learnt.
Shares that differ far beyond chance are a fault only where validation is worse as well and training was not evened out on purpose.

What to do
----------
Shuffle before splitting, by `stratify=` in `train_test_split`, or by group where rows belong together.

When this is wrong
------------------
A validation on classes that are unseen on purpose, with answers among the trained ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.derive.strength import slope

LITTLE, MUCH = 0.05, 0.2  # share of validation rows whose class was never trained on (starting values)
DIFFERENT = 0.35  # half of the sum of the differences of shares
EVEN = 0.95  # entropy over its largest, above which training was evened out
WORSE = 1.3  # validation loss over training loss
ERRORS = 6.0
LEAST_ROWS = 200


def detect(training: Training) -> Detection | None:
    """Compare the classes of training and validation."""
    facts = training.experiment("held_out")
    trained, held = (_counts(facts.get(name)) for name in ("trained_classes", "held_classes"))
    if sum(trained.values()) < LEAST_ROWS or not held or len(trained) < 2:
        return None
    strange = sum(count for label, count in held.items() if label not in trained) / sum(held.values())
    if strange > LITTLE:
        names = ", ".join(sorted(label for label in held if label not in trained)[:10])
        seen = f"{strange:.0%} of the validation rows are of classes that were never trained on"
        return _told(training, 0.95 * slope(strange, LITTLE, MUCH), seen, "0%", f"classes {names}")
    distance, error = _distance(trained, held)
    if not distance > max(DIFFERENT, ERRORS * error) or _evenness(trained) > EVEN or not _worse(training):
        return None
    return _told(training, 0.85, f"shares of the classes differ by {distance:.0%}", f"below {DIFFERENT:.0%}", "validation beside training")


def _counts(value: Any) -> Mapping[str, int]:
    return {str(label): int(count) for label, count in value.items()} if isinstance(value, Mapping) else {}


def _distance(one: Mapping[str, int], other: Mapping[str, int]) -> tuple[float, float]:
    """Return half of the sum of the differences of shares, and about what chance makes of it."""
    sizes = sum(one.values()), sum(other.values())
    labels = {*one, *other}
    apart = sum(abs(one.get(label, 0) / sizes[0] - other.get(label, 0) / sizes[1]) for label in labels) / 2
    return apart, math.sqrt(len(labels)) / 4 * math.sqrt(1 / sizes[0] + 1 / sizes[1])


def _evenness(counts: Mapping[str, int]) -> float:
    shares = [count / sum(counts.values()) for count in counts.values() if count]
    return -sum(share * math.log(share) for share in shares) / math.log(len(shares)) if len(shares) > 1 else 0.0


def _worse(training: Training) -> bool:
    losses = [float(row["loss"]) for row in training.rows.get("validation", []) if row.get("loss") is not None]
    trained = training.signals.get("loss", Series.of([])).finite()
    return bool(losses) and len(trained) > 0 and losses[-1] > WORSE * float(median(trained.values[-max(1, len(trained) // 10) :].tolist()))


def _told(training: Training, strength: float, seen: str, expected: str, note: str) -> Detection | None:
    return Detection(strength, (Evidence("held_out", (0, training.steps), seen, expected, note),)) if strength > 0 else None


def _run(trained: dict[str, int], held: dict[str, int], loss: float = 4.0) -> Training:
    facts = {"trained_classes": trained, "held_classes": held}
    return Training(
        signals={"loss": Series.of([2.3] * 10 + [0.2] * 30)},
        rows={"validation": [Row(40, {"loss": loss, "rows": sum(held.values())})]},
        experiments={"held_out": Experiment("held_out", "done", 0.5, facts)},
    )


FAULT = Fault(
    code="DAT008",
    slug="split-shift",
    title="Validation data come from another distribution",
    detect=detect,
    needs=("held_out",),
    fix="Shuffle before splitting, with stratify=, or split by group where rows belong together.",
    severity="warning",
    explains=("overfitting", "preprocessing-mismatch", "labels-meaningless", "train-mode-in-eval", "validation-too-small"),
    examples=(
        Example("sick", _run({"0": 300, "1": 310, "2": 290}, {"2": 30, "3": 170}), "the last class was never trained on"),
        Example("sick", _run({"0": 700, "1": 100, "2": 100}, {"0": 20, "1": 100, "2": 100}), "other shares, and worse"),
        Example("healthy", _run({"0": 300, "1": 310}, {"0": 80, "1": 90}), "alike"),
        Example("healthy", _run({"0": 700, "1": 100}, {"0": 150, "1": 30}), "uneven alike"),
        Example("look-alike", _run({"0": 400, "1": 410}, {"0": 190, "1": 10}), "training was evened out"),
        Example("look-alike", _run({"0": 700, "1": 100}, {"0": 50, "1": 120}, 0.2), "other shares, and as good"),
        Example("look-alike", _run({"0": 70}, {"0": 5, "1": 50}), "too few rows were seen"),
        Example("known miss", _run({"0": 300, "1": 300}, {"0": 85, "1": 85, "2": 20}), "a tenth of unknown classes"),
    ),
    decides_with=("held_out",),
)
