"""The run was resumed without the state of the optimiser or of the schedule.

What you see
------------
At the step of the restart the loss jumps up, needs a while to come back, and the rate is not what it was.

Why it happens
--------------
Only the weights were saved. The optimiser starts with empty moments, so that its first steps are far too long or in wrong directions;
the schedule starts at its beginning, with the full rate.

How it is told apart
--------------------
The log itself shows the restart: its count of steps goes back to the checkpoint's. The loss right after it is compared with the loss
around the checkpoint, in units of its noise. Other data after the restart lift the loss as well, and stay lifted.

What to do
----------
Save and load `optimizer.state_dict()`, `scheduler.state_dict()`, the scaler's state and the position in the data, beside the weights.

When this is wrong
------------------
A restart on other data, or with another batch size, looks alike.
"""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Series, Training

# Starting values: the level after a sound restart is within 3 % and three deviations of the level before.
HIGHER, DEVIATIONS = 0.08, 4.0
RATE = 1.5  # times the rate before


def detect(training: Training) -> Detection | None:
    """Compare loss and rate around each restart that the reader found."""
    training.series("loss")
    for resume in training.fact("log_resumes") or []:
        found = _judge(resume)
        if found is not None:
            return found
    return None


def _judge(resume: dict[str, Any]) -> Detection | None:
    before, after, noise = resume.get("before"), resume.get("after"), resume.get("noise") or 0.0
    if before is None or after is None or before <= 0:
        return None
    rise = after - before
    if rise < HIGHER * before or rise < DEVIATIONS * noise:
        return None
    at = int(resume["at"])
    seen = [Evidence("loss", (at, at), f"{before:.4g} before, {after:.4g} after", "the same level", f"resumed at {at}")]
    rates = resume.get("rates")
    if rates and rates[0] and rates[1] / rates[0] > RATE:
        seen.append(Evidence("lr", (at, at), f"{rates[0]:.3g} to {rates[1]:.3g}", "the same rate", "the schedule began anew"))
    return Detection(0.9 if len(seen) > 1 else 0.82, tuple(seen))


def _run(**resume: object) -> Training:
    facts = {"log_resumes": [{"at": 500.0, "lost": 10, **resume}]} if resume else {}
    return Training(signals={"loss": Series.of([2.0, 1.0, 0.9])}, facts=facts)


FAULT = Fault(
    code="OPT013",
    slug="resume-without-state",
    title="Resumed without optimiser or scheduler state",
    detect=detect,
    needs=("loss",),
    fix="Save and load the states of optimiser, schedule and scaler beside the weights.",
    severity="warning",
    explains=("loss-spike",),
    examples=(
        Example("sick", _run(before=1.0, after=1.5, noise=0.02), "the loss jumps at the restart"),
        Example("sick", _run(before=1.0, after=1.3, noise=0.02, rates=[1e-5, 1e-4]), "and the rate begins anew"),
        Example("healthy", _run(before=1.0, after=1.01, noise=0.02), "goes on as if nothing had been"),
        Example("healthy", _run(), "never resumed"),
        Example("look-alike", _run(before=1.0, after=1.2, noise=0.1), "within the noise"),
        Example("look-alike", _run(before=1.0, after=0.95, noise=0.02, rates=[1e-5, 1e-4]), "another rate, no harm seen"),
    ),
)
