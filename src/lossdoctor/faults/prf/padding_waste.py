"""More than half of the work is padding.

What you see
------------
Steps on short texts, or short recordings, take as long as those on the longest.

Why it happens
--------------
All rows of a batch are filled up to one length: that of the longest row of the batch, or of the whole data set, or a fixed maximum. The
network computes the filling like everything else.

How it is told apart
--------------------
In sampled batches the places at the ends of the rows are counted that hold one and the same value in most rows. It must be sequences, and a
model that has layers for them. What is expected to be gained is that share of forward and backward, whose cost goes by the step.

What to do
----------
Fill up to the longest row of the batch, not to a fixed length; put rows of like length into one batch (a sampler that sorts
within buckets); or pack several short rows into one.

When this is wrong
------------------
Sequences that go through `pack_padded_sequence`, or in a nested tensor, are computed without the filling, and do not count; kernels that
skip it by a mask of their own are not known. Silence at the end of a recording, where it is meant, looks the same.
"""

from __future__ import annotations

import numpy as np

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.strength import slope

LITTLE, HALF = 0.4, 0.55  # share of the places of a batch; the catalogue's "more than half"
_OF_SEQUENCES = {"Embedding", "GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell", "MultiheadAttention", "Conv1d"}
_LAYERS = _OF_SEQUENCES | {"NonDynamicallyQuantizableLinear"}  # the last is the output of torch's own attention


def detect(training: Training) -> Detection | None:
    """Take the median of the padding of the sampled batches."""
    rows = [(row.step, _padding(row)) for row in training.table("batch")]
    known = [(step, share) for step, share in rows if share is not None]
    if not known:
        return None
    kinds = {layer.get("kind") for layer in (training.fact("model") or {}).get("layers") or () if isinstance(layer, dict)}
    if training.has("model") and not kinds & _LAYERS:
        return None
    if not training.has("model"):
        raise SignalMissing("model")
    if any(row.get("packed") is True for row in training.rows.get("backward_graph", [])):
        return None  # the recurrent layer is given the rows without their filling
    share = float(np.median([share for _, share in known]))
    strength = slope(share, LITTLE, HALF)
    if not strength > 0:
        return None
    seen = f"{share:.0%} of the places of a batch are filling"
    evidence = Evidence("batch", (known[0][0], known[-1][0]), seen, f"below {LITTLE:.0%}")
    return Detection(strength, (evidence,), where=training.where("loader"), gain=_gain(training, share))


def _padding(row: Row) -> float | None:
    """Return the largest share among the inputs: a mask beside the tokens has its own ends."""
    inputs = row.get("inputs")
    shares = [each.get("padding") for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
    known = [float(share) for share in shares if isinstance(share, int | float) and 0.0 <= share <= 1.0]
    return max(known, default=None)


def _gain(training: Training, share: float) -> dict[str, float]:
    named = (training.signals.get(name, Series.of([])).finite() for name in ("forward_seconds", "backward_seconds", "wall"))
    forward, backward, wall = named
    if not len(forward) or not len(backward) or len(wall) < 2 or not wall.last > wall.first:
        return {}
    step = float(np.median(np.diff(wall.values)))
    compute = float(np.median(forward.values)) + float(np.median(backward.values))
    return {"time": share * min(1.0, compute / step)} if step > 0 else {}


def _run(padding: float | None, kind: str = "GRU", packed: bool = False) -> Training:
    rows = [Row(i, {"inputs": [{"shape": [32, 80, 1], "padding": padding}, {"shape": [32], "padding": None}]}) for i in range(5)]
    steps = range(20)
    signals = {
        "wall": Series.of([0.1 * i for i in steps]),
        "forward_seconds": Series.of([0.03] * 20),
        "backward_seconds": Series.of([0.05] * 20),
    }
    graph = [Row(0, {"packed": packed})]
    return Training(
        rows={"batch": rows, "backward_graph": graph}, signals=signals, facts={"model": {"layers": [{"kind": kind}, {"kind": "Linear"}]}}
    )


FAULT = Fault(
    code="PRF005",
    slug="padding-waste",
    title="More than half of the work is padding",
    detect=detect,
    needs=("batch", "model"),
    fix="Fill up to the longest row of the batch only, and put rows of like length together.",
    severity="advice",
    examples=(
        Example("sick", _run(0.72), "one length for all rows"),
        Example("sick", _run(0.85, "Embedding"), "tokens up to a fixed maximum"),
        Example("healthy", _run(0.1), "rows of like length"),
        Example("healthy", _run(None), "no sequences"),
        Example("look-alike", _run(0.72, "Conv2d"), "images with dark margins"),
        Example("look-alike", _run(0.72, "LSTM", packed=True), "packed, so that the filling is not computed"),
        Example("look-alike", _run(0.35), "a third, as batches of random rows have"),
        Example("look-alike", _run(0.9, "Linear"), "a table of counts that ends in rare ones"),
    ),
)
