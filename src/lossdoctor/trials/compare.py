"""Compare control and treated: the level of a signal in each, the effect, its interval over pairs, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from lossdoctor.core.run import Series, Training
from lossdoctor.derive.depth import flow
from lossdoctor.derive.level import expected_level
from lossdoctor.derive.unseen import unseen_passes
from lossdoctor.derive.wait import wait_share

CONFIRMED, REFUTED, UNCLEAR = "confirmed", "refuted", "unclear"
# An effect below a tenth is not worth a change, whatever its interval (starting value).
SMALLEST = 0.1
# Levels below a tenth of what guessing gives are good: their differences count against that tenth (starting value).
GOOD = 0.1
LOOKS = 3  # at how many counts of pairs a trial may be ended: each interval is made wider for it (Bonferroni)
CONFIDENCE = 0.95
# Graphs of earlier steps that are alive or reached: up to 3 in healthy loops (field guide), which must be less than a tenth of it.
FEW_GRAPHS = 32.0
SMALL_GROWTH = float(16 << 20)  # bytes; below it allocators and caches alone make the difference (starting value)
TAIL = 0.2  # share of the steps at the end that a level is taken from


@dataclass(frozen=True)
class Effect:
    """Hold an effect over pairs: the share by which a signal moved the way it should, in [-1, 1].

    Args:
        mean: over the pairs.
        low, high: its interval.

    Example:
        >>> effect_of([0.9, 0.91]).low > 0.5
        True
    """

    mean: float
    low: float
    high: float


def effect_of(effects: Sequence[float]) -> Effect:
    """Return the mean over pairs with its interval (Student's t, widened for repeated looks).

    Args:
        effects: one per pair, in [-1, 1].
    """
    values = np.asarray(effects, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Effect(mean, -1.0, 1.0)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if error == 0:
        return Effect(mean, mean, mean)
    low, high = stats.t.interval(1 - (1 - CONFIDENCE) / LOOKS, len(values) - 1, mean, error)
    return Effect(mean, max(-1.0, float(low)), min(1.0, float(high)))


def verdict(effect: Effect, validation: Effect | None) -> str:
    """Say what an effect means: confirmed where it is clearly worth the change, and validation is not clearly worse for it.

    Example:
        >>> verdict(Effect(0.9, 0.8, 1.0), None), verdict(Effect(0.0, 0.0, 0.0), None)
        ('confirmed', 'refuted')
    """
    if effect.high < SMALLEST:
        return REFUTED
    if effect.low >= SMALLEST and effect.mean >= SMALLEST:
        worse = validation is not None and validation.high < -SMALLEST
        return UNCLEAR if worse else CONFIRMED
    return UNCLEAR


def moved(control: float, treated: float, floor: float = 0.0) -> float:
    """Return the share by which a level fell, in [-1, 1]; a level that is not finite is worse than any.

    Args:
        control, treated: levels.
        floor: differences are measured against no less than this.

    Example:
        >>> moved(2.0, 0.5), moved(0.5, 2.0), moved(math.inf, 0.5), moved(0.001, 0.0005, 0.23)
        (0.75, -0.75, 1.0, 0.002173913043478261)
    """
    if not math.isfinite(control) or not math.isfinite(treated):
        return float(math.isfinite(treated)) - float(math.isfinite(control))
    unit = max(abs(control), abs(treated), floor)
    return max(-1.0, min(1.0, (control - treated) / unit)) if unit else 0.0


@dataclass(frozen=True)
class Measure:
    """Hold how a signal is compared: its level in a training up to a step, and below which level all is good.

    Args:
        level: of a training, up to a step; None where it was not recorded.
        floor: of the control.
    """

    level: Callable[[Training, int], float | None]
    floor: Callable[[Training], float]

    def effect(self, control: Training, treated: Training, steps: int, *, up: bool) -> tuple[float, float, float] | None:
        """Return the levels of both and the effect, of a level that should fall or rise; None where one was not recorded."""
        levels = self.level(control, steps), self.level(treated, steps)
        if levels[0] is None or levels[1] is None:
            return None
        sign = -1.0 if up else 1.0
        return levels[0], levels[1], sign * moved(levels[0], levels[1], self.floor(control))


def loss_level(training: Training, steps: int, signal: str = "loss") -> float | None:
    """Return the median loss of the last fifth of so many steps; infinite where it ended so."""
    values = training.signals.get(signal, Series.of([])).between(0, steps).values
    if not len(values):
        return None
    end = values[-max(1, int(len(values) * TAIL)) :]
    return float(np.median(end)) if np.isfinite(values[-1]) and np.isfinite(end).any() else math.inf


def validation_level(training: Training, steps: int, field: str = "loss") -> float | None:
    """Return the mean over the last third of the validation passes within so many steps; those over trained rows do not count."""
    rows = [row for row in unseen_passes(training) if row.step <= steps] if training.has("validation") else []
    values = [row.get(field) for row in rows]
    known = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not known:
        return None
    end = known[-max(1, len(known) // 3) :]
    return float(np.mean(end)) if np.isfinite(end).all() else math.inf


def wait_level(training: Training, steps: int) -> float | None:
    """Return the share of waiting in the second half of so many steps: what fills a cache has done so by then."""
    half = steps // 2
    parts = {
        name: training.signals[name].between(half, steps)
        for name in ("wall", "loader_seconds", "idle_seconds", "gap_seconds")
        if name in training.signals
    }
    if "wall" not in parts:
        return None
    spans = [(row.get("began"), row.get("seconds")) for row in training.rows.get("validation", [])]
    passes = [(began, began + seconds) for began, seconds in spans if began is not None and seconds is not None]
    found = wait_share(parts["wall"], parts.get("loader_seconds"), parts.get("idle_seconds"), parts.get("gap_seconds"), passes)
    return found.share if found else None


def step_time(training: Training, steps: int) -> float | None:
    """Return the seconds of a step, the median of the last fifth of so many steps."""
    walls = training.signals.get("wall", Series.of([])).between(0, steps).values
    taken = np.diff(walls)
    return float(np.median(taken[-max(1, int(len(taken) * TAIL)) :])) if len(taken) else None


def memory_growth(training: Training, steps: int) -> float | None:
    """Return the bytes by which the process grew behind the first quarter of so many steps, before which much is made once."""
    values = training.signals.get("memory", Series.of([])).between(steps // 4, steps).finite().values
    return max(0.0, float(values.max() - values[0])) if len(values) > 1 else None


def graphs_held(training: Training, steps: int) -> float | None:
    """Return how many graphs of earlier steps are alive, or how many calls one reaches back; infinite where one raised."""
    rows = [row for row in training.rows.get("backward_graph", []) if row.step <= steps]
    if any(row.get("raised") for row in rows):
        return math.inf
    found = [row.get(name) for row in rows for name in ("kept", "reach")]
    known = [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]
    return max(known, default=None)


def share_of_guess(training: Training, steps: int) -> float | None:
    """Return the loss as a share of what guessing gives, which weights of classes leave comparable.

    Under weights that make classes count alike the best constant is the even one, which a batch's own frequencies do not show.
    """
    level, loss = expected_level(training), loss_level(training, steps)
    if level is None or loss is None:
        return None
    weighted = any(row.get("weighted") for row in training.rows.get("loss_call", []))
    unit = level.start if weighted else level.guess
    return loss / unit if unit > 0 else None


def _guess(training: Training) -> float:
    level, loss = expected_level(training), training.signals.get("loss", Series.of([])).finite()
    unit = level.guess if level else loss.first if len(loss) else 0.0
    return GOOD * abs(unit)


def _guess_of_call(training: Training) -> float:
    """Return the same of the known loss function, which may be one term of a loss that is far larger."""
    rows = [row.get("guess_loss") for row in training.rows.get("loss_call", [])]
    known = [float(value) for value in rows if isinstance(value, int | float) and math.isfinite(value)]
    calls = training.signals.get("call_value", Series.of([])).finite()
    unit = float(np.median(known)) if known else calls.first if len(calls) else 0.0
    return GOOD * abs(unit)


def _error(training: Training, steps: int) -> float | None:
    """Return the share of rows that validation got wrong, or of variance that it left unexplained."""
    right = validation_level(training, steps, "correct")
    if right is None:
        right = validation_level(training, steps, "r2")
    return None if right is None else 1.0 - right


def _depth(training: Training, steps: int) -> float | None:
    found = flow(training)
    return found.ratio if found else None


LOSS = Measure(loss_level, _guess)
VALIDATION = (Measure(validation_level, _guess), Measure(_error, lambda training: GOOD))
MEASURES: dict[str, tuple[Measure, ...]] = {
    "loss": (LOSS,),
    "validation": VALIDATION,
    "wait_share": (Measure(wait_level, lambda training: GOOD),),
    "grad_norms": (Measure(_depth, lambda training: 0.0),),
    "call_value": (Measure(lambda training, steps: loss_level(training, steps, "call_value"), _guess_of_call),),
    "loss_call": (Measure(share_of_guess, lambda training: GOOD),),
    "step_time": (Measure(step_time, lambda training: 0.0),),
    "backward_graph": (Measure(graphs_held, lambda training: FEW_GRAPHS),),
    "memory": (Measure(memory_growth, lambda training: SMALL_GROWTH),),
}


def compared(signal: str, control: Training, treated: Training, steps: int, *, up: bool = False) -> tuple[float, float, float] | None:
    """Return control's level, treated's level and the effect, by the first measure of the signal that both recorded.

    Args:
        signal: that the treatment should move.
        control, treated: trainings of one pair.
        steps: that are compared.
        up: whether the treatment should raise it.
    """
    found = (measure.effect(control, treated, steps, up=up) for measure in MEASURES[signal])
    return next((each for each in found if each is not None), None)
