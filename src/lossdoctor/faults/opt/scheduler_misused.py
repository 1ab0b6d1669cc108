"""A schedule of the learning rate is counted in the wrong unit, watches its metric the wrong way, or leaves the rate at nothing.

What you see
------------
The loss stops moving long before the end, or hardly moves from the start, though the rate at the start was right.

Why it happens
--------------
A length in epochs meets a `scheduler.step()` at every batch, or the other way round; `ReduceLROnPlateau` is left at `mode="min"` and is
given a score; a factor is worked out in whole numbers and is zero.

How it is told apart
--------------------
The scheduler's own settings and how often it was stepped are held against the steps and epochs of the run, and its effect is read from the
rate: below a hundredth of its peak for half of the run. A plateau is gone through again with the metric that it was given, in both modes,
and the metric is known by the losses and scores of the validation passes. A rate that is low from its first step on is no
matter of the schedule; one that ends at zero with the run, starts over, or is cut late by a real plateau is in order.

What to do
----------
Step the scheduler where its length is counted: after each batch with a length in batches, after each epoch with a length in epochs.
`ReduceLROnPlateau` wants `mode="max"` for a score.

When this is wrong
------------------
A rate that is let die on purpose after all is learnt looks alike, where the loss ends far above zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault, Plant
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.outcome import outcome
from lossdoctor.derive.schedules import better_way, epochs_of, length, metrics, number, per_batch, plateau_cuts, schedules
from lossdoctor.derive.strength import slope

DEAD = 0.01  # share of its peak below which a rate does nothing (field guide, row 50)
ALIVE_FAIR, ALIVE_SHORT = 0.6, 0.45  # share of the run with a living rate; the field guide asks at its half
ZERO = 0.9  # share of steps at a rate of zero that no warm-up has; the field guide asks for .99, short runs have a first step
DONE = 0.05  # a loss at this share of guessing when the run ends was learnt: the rate may die (starting value)
STARVED = 0.2  # rate that wrong cuts leave of the right one; a third may be luck (starting value)
LEAST_STEPS = 20  # shorter runs have no schedule to speak of
CYCLES = 4  # falls and rises of a schedule that is meant to fall once
EPOCH_OFF = 1.5  # a length in epochs and the epochs of the run differ by less than this
FRACTION, ALL = 0.2, 0.5  # of its length that a schedule came to; share of the steps that its length is at least
SURE, DOUBTFUL = 0.95, 0.6


def detect(training: Training) -> Detection | None:
    """Hold each schedule against the run, and take what is clearest."""
    if training.steps < LEAST_STEPS:
        return None
    looks = (_zero, _wrong_way, _died, _cycled, _too_long, _unused)
    found = [seen for each in schedules(training) for look in looks if (seen := look(training, each)) is not None]
    return max(found, key=lambda seen: (seen.severity != "advice", seen.strength), default=None)


def _zero(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a rate that is zero at nearly every step."""
    rates = _rates(training)
    share = float((rates.values == 0).mean()) if len(rates) else 0.0
    if share < ZERO:
        return None
    seen = Evidence("lr", _span(rates), f"zero at {share:.0%} of the steps", "above zero", _name(schedule))
    return Detection(SURE, (seen,), "The schedule makes the rate zero: look at its factor and at the unit that it counts in.")


def _wrong_way(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a plateau that takes what gets better for what does not."""
    given, mode, factor = metrics(schedule), str(schedule.get("mode")), number(schedule, "factor")
    other = {"min": "max", "max": "min"}.get(mode)
    if other is None or factor is None or not np.isfinite(given).all():
        return None
    way = better_way(training, given)
    cuts, right = plateau_cuts(schedule, mode), plateau_cuts(schedule, other)
    # Once the rate is gone the metric stands still, and the right mode would cut as well: its cuts count only up to there.
    early = [call for call in right if way is None or call <= min(cuts, default=0)]
    if way == mode or len(cuts) - len(early) < 2 or factor ** (len(cuts) - len(early)) > STARVED:
        return None
    got = f"{given[0]:.3g} at first, {given[-1]:.3g} at last; {len(cuts)} cuts from call {cuts[0] + 1} on"
    kind = {"min": "a loss", "max": "a score"}.get(way or "", "what it is given")
    seen = Evidence("schedules", _span(_rates(training)), got, "cuts where nothing improves", f"ReduceLROnPlateau(mode={mode!r})")
    return Detection(SURE if way else DOUBTFUL, (seen,), f"Give ReduceLROnPlateau mode={other!r}: it watches {kind}.")


def _died(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a rate that is next to nothing for half of the run."""
    rates = _rates(training)
    plateau = schedule.get("patience") is not None
    batches = per_batch(training, schedule)
    if not len(rates) or rates.values.max() <= 0 or (plateau and not batches) or _learnt(training):
        return None
    alive = np.flatnonzero(rates.values > DEAD * rates.values.max())
    end = int(rates.steps[alive[-1]]) + 1
    strength = (SURE if batches else DOUBTFUL) * slope(end / training.steps, ALIVE_FAIR, ALIVE_SHORT)
    if strength <= 0:
        return None
    span = (end, training.steps - 1)
    seen = Evidence(
        "lr", span, f"below {DEAD:.0%} of {rates.values.max():.3g} after step {end}", "alive for most of the run", _name(schedule)
    )
    fix = "It is stepped at every batch: step it once an epoch, or give its length in batches." if batches else ""
    return Detection(strength, (seen, _counted(training, schedule)), fix)


def _cycled(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a cosine over so many epochs that goes through as many batches."""
    long, epochs = number(schedule, "T_max"), epochs_of(training)
    if not long or epochs is None or not per_batch(training, schedule):
        return None
    if abs(long - epochs) > EPOCH_OFF or training.steps < CYCLES * long:
        return None
    times = training.steps / (2 * long)
    seen = Evidence("lr", _span(_rates(training)), f"falls and rises {times:.0f} times", "falls once", _name(schedule))
    fix = "Its length is that of the run in epochs, and it is stepped at every batch: step it once an epoch."
    return Detection(SURE, (seen, _counted(training, schedule)), fix)


def _too_long(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a schedule as long as the run has batches that is stepped once an epoch; where it is a warm-up, the rate stays low."""
    long, calls = length(schedule), number(schedule, "calls") or 0.0
    if not long or not 1 < calls < FRACTION * long or long < ALL * training.steps or 2 * calls > training.steps or _cut_off(training):
        return None
    rates = _rates(training)
    warms = len(rates) > 1 and rates.last > rates.first and rates.last >= float(rates.values.max())
    came = Evidence("schedules", _span(rates), f"{calls:.0f} of {long:.0f} steps of its length", "about all of them", _name(schedule))
    fix = "Its length is in batches, and it is stepped once an epoch: step it after each batch."
    return Detection(SURE, (came, _counted(training, schedule)), fix, severity=None if warms else "advice")


def _unused(training: Training, schedule: Mapping[str, Any]) -> Detection | None:
    """See a schedule that was never stepped, or turns the rate of an optimiser that does not step."""
    epochs, stray = epochs_of(training), bool(schedule.get("stray"))
    if (number(schedule, "calls") or 0.0) > 0 and not stray:
        return None
    if epochs is None or epochs < 2 or _cut_off(training):
        return None
    got = "turns the rate of an optimiser that never steps" if stray else "never stepped"
    seen = Evidence("schedules", (0, training.steps - 1), got, "stepped once an epoch or batch", _name(schedule))
    fix = "Build the scheduler on the optimiser that steps." if stray else "Call scheduler.step(), or leave the scheduler out."
    return Detection(SURE, (seen,), fix, severity="advice")


def _rates(training: Training) -> Series:
    return training.signals.get("lr", Series.of([])).finite()


def _span(rates: Series) -> tuple[int, int]:
    return (int(rates.steps[0]), int(rates.steps[-1])) if len(rates) else (0, 0)


def _name(schedule: Mapping[str, Any]) -> str:
    return str(schedule.get("name", "scheduler"))


def _learnt(training: Training) -> bool:
    """Tell whether little was left to learn."""
    level, loss = expected_level(training), training.signals.get("loss")
    seen = outcome(loss, level.guess if level else None) if loss is not None and len(loss) else None
    return seen is not None and seen.level is not None and seen.level < DONE


def _cut_off(training: Training) -> bool:
    """Tell whether the script did not come to its own end: then no schedule did."""
    ended = training.run_facts.get("ended")
    return isinstance(ended, Mapping) and ended.get("how") not in (None, "returned", "exit")


def _counted(training: Training, schedule: Mapping[str, Any]) -> Evidence:
    epochs = epochs_of(training)
    run = f"{training.steps} batches" + (f" in {epochs:.0f} epochs" if epochs else "")
    return Evidence("schedules", (0, training.steps - 1), f"stepped {number(schedule, 'calls') or 0:.0f} times", run, _name(schedule))


def _run(rates: list[float], calls: int, validation: list[dict[str, Any]] | None = None, end: float = 1.5, **settings: Any) -> Training:
    """Build a training of as many steps as rates, in ten epochs."""
    each = len(rates) // 10
    passes = [Row((i + 1) * each - 1, fields) for i, fields in enumerate(validation or [{"rows": 10}] * 10)]
    call = Row(0, {"kind": "cross_entropy", "guess_loss": 2.3, "zero_loss": 2.3})
    loss = [2.3 + (end - 2.3) * min(1.0, 3 * i / len(rates)) for i in range(len(rates))]
    schedule = {"name": "Schedule", "calls": calls, "stray": False, "metrics": [], **settings}
    return Training(
        signals={"loss": Series.of(loss), "lr": Series.of(rates)},
        rows={"validation": passes, "loss_call": [call]},
        facts={"schedules": [schedule], "steps": len(rates)},
    )


def _wave(steps: int, half: int) -> list[float]:
    return [0.05 * (1 + float(np.cos(np.pi * i / half))) for i in range(steps)]


_SCORES = [0.35, 0.4, 0.55, 0.6, 0.62, 0.63, 0.64, 0.65, 0.66, 0.67]
_STARVED = [0.35, 0.37, 0.65, 0.82, 0.79, 0.76, 0.77, 0.75, 0.74, 0.74]
_LOSSES = [1.6, 1.4, 1.2, 1.1, 1.0, 0.95, 0.9, 0.88, 0.86, 0.85]
_RISES = [1.6, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 2.1, 2.2, 2.3]
_PLATEAU: dict[str, Any] = {
    "name": "ReduceLROnPlateau",
    "factor": 0.3,
    "patience": 1,
    "threshold": 1e-4,
    "threshold_mode": "rel",
    "cooldown": 0,
}
_CUT = [0.1 * 0.3 ** max(0, i // 20 - 1) for i in range(100)]


def _watched(mode: str, given: list[float], field: str) -> Training:
    passes = [{"rows": 10, field: value} for value in given]
    return _run(_CUT, 10, passes, mode=mode, **{**_PLATEAU, "metrics": given})


_BY_BATCH: tuple[Literal["loop"], str, str] = ("loop", r"optimizer\.step\(\)", "optimizer.step(); scheduler.step()")
_MAKER = r"^(optimizer = .+)$"
_MADE = r"\1\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, {}, gamma={})"

FAULT = Fault(
    code="OPT006",
    slug="scheduler-misused",
    title="Schedule of the rate misused",
    detect=detect,
    needs=("schedules", "lr"),
    fix="Step the scheduler in the unit of its length; give ReduceLROnPlateau the mode of its metric.",
    severity="warning",
    explains=("lr-too-low", "loss-flat", "underfitting", "too-few-epochs", "val-better-than-train"),
    examples=(
        Example("sick", _watched("min", _SCORES, "correct"), "a score watched as a loss"),
        Example("sick", _watched("min", _STARVED, "correct"), "a score that stops rising once the rate is gone"),
        Example("sick", _watched("max", _LOSSES, "loss"), "a loss watched as a score"),
        Example("sick", _run([0.1 * 0.1 ** (i // 5) for i in range(100)], 100, step_size=5, gamma=0.1), "steps meant for epochs"),
        Example("sick", _run(_wave(100, 10), 100, T_max=10), "a cosine of ten epochs over ten batches"),
        Example("sick", _run([0.0] * 100, 100), "a factor of zero"),
        Example("sick", _run([0.004 + 1e-6 * (i // 10) for i in range(100)], 10, total_steps=100), "warms up by epochs, over batches"),
        Example("healthy", _run(_wave(100, 100), 100, T_max=100), "a cosine to the very end"),
        Example("healthy", _run(_wave(100, 100), 10, T_max=10), "the same by epochs"),
        Example("healthy", _run(_wave(100, 25)[:25] * 4, 100, name="CosineAnnealingWarmRestarts", T_0=25), "warm restarts"),
        Example("look-alike", _watched("min", _RISES, "loss"), "a loss that really rises"),
        Example("look-alike", _watched("max", _SCORES, "correct"), "a score watched as one"),
        Example("look-alike", _run([0.1 * 0.1 ** (i // 20) for i in range(100)], 100, end=0.02, gamma=0.1), "all is learnt when it dies"),
        Example(
            "known miss", _run([0.1 * 0.5 ** (i // 12) for i in range(100)], 100, gamma=0.5), "halved too often, alive for half of the run"
        ),
    ),
    plants=(
        Plant("middle", *_BY_BATCH, also=(("optimiser", _MAKER, _MADE.format(7, 0.33)),)),
        Plant("severe", *_BY_BATCH, also=(("optimiser", _MAKER, _MADE.format(6, 0.17)),)),
    ),
    bigger_machine=BiggerMachine("no", "the rate stays what the schedule makes of it"),
)
