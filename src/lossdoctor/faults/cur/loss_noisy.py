"""The loss is so noisy that its level is hard to read.

What you see
------------
Neighbouring values differ by a tenth of the level and more, although the mean falls.

Why it happens
--------------
Small batches, or a rate at the edge of what is stable. Losses of rewards and of policies are noise by their nature.

How it is told apart
--------------------
The noise is taken from second differences, which the curve's own bend and lone spikes do not move, and set against the level. Near
zero any loss is noisy: there nothing is said. Whether the rate or the batch makes the noise a curve cannot tell: at a larger batch
or at a lower rate it shrinks in both cases, and only watching separates them.

What to do
----------
Do not read the last value as the level; take the mean over many. Where it slows the run: a larger batch (or accumulation), or a
lower rate. A score on held-out data is less noisy.

When this is wrong
------------------
Batches of very different length or difficulty scatter by themselves, at any rate.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.curves import objective, shape

LEAST_VALUES = 40
# Starting values: batches of 4 scattered by 11 % of the level, batches of 32 by 1 to 5 %.
NOISY = 0.1
NEAR_ZERO = 0.04  # of the start


def detect(training: Training) -> Detection | None:
    """Set the noise of the loss against its level."""
    loss = training.series("loss")
    found = shape(loss)
    kind = objective(training)
    if found is None or found.count < LEAST_VALUES or kind == "adversarial":
        return None
    ratio = found.noise / abs(found.level) if found.level else 0.0
    near_zero = abs(found.level) < NEAR_ZERO * abs(found.start)
    if ratio < NOISY or (near_zero and kind == "plain"):
        return None
    span = (int(loss.steps[0]), int(loss.steps[-1]))
    note = (
        "the loss of a policy says little; judge by the reward" if kind == "reinforced" else "read means over many values, not the last one"
    )
    seen = Evidence("loss", span, f"{ratio:.0%} of the level from value to value", f"below {NOISY:.0%}", note)
    return Detection(min(0.95, 0.8 + 0.5 * (ratio - NOISY)), (seen,))


def _run(level: float, noise: float, start: float = 4.0, count: int = 80, **facts: object) -> Training:
    signs = [1, -1, -1, 1, 1, -1, 1, -1]
    values = [level + (start - level) * 0.9**i + noise * signs[i % 8] for i in range(count)]
    return Training(signals={"loss": Series.of(values)}, facts=dict(facts))


FAULT = Fault(
    code="CUR003",
    slug="loss-noisy",
    title="Very noisy loss",
    detect=detect,
    needs=("loss",),
    fix="Judge by means or by held-out data; a larger batch or a lower rate makes it smoother.",
    severity="advice",
    examples=(
        Example("sick", _run(1.8, 0.3), "batches of four"),
        Example("sick", _run(-20.0, 15.0, -50.0, log_words=["loss", "reward"]), "a policy's loss"),
        Example("healthy", _run(1.8, 0.03), "batches of thirty-two"),
        Example("healthy", _run(1.8, 0.0), "means over epochs"),
        Example("look-alike", _run(0.02, 0.01), "near zero"),
        Example("look-alike", _run(1.8, 0.3, count=20), "too few values"),
        Example("look-alike", _run(0.7, 0.2, log_words=["loss", "d", "g"]), "a generative pair"),
    ),
)
