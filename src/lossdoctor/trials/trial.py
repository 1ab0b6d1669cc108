"""The trial of one treatment: pairs of control and treated on the same seeds, until the effect is clear."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lossdoctor.core.run import Run, Training
from lossdoctor.launch.child import end_all
from lossdoctor.trials.arms import Arm, Plan, run_arm
from lossdoctor.trials.compare import REFUTED, UNCLEAR, Effect, compared, effect_of, verdict
from lossdoctor.trials.under import WorkUp

FEWEST, MOST = 2, 4  # pairs
CURVE_POINTS = 100
# Shares of the steps that may be enough for further pairs: they show most of the whole effect, and a clear one (starting values).
LEAST_CUT = 20  # steps that an arm which was cut short must have taken (starting value)
SHARES, LEAST_STEPS, MOST_OF_IT, CLEAR = (0.125, 0.25, 0.5), 40, 0.7, 0.3
Value = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """Hold what a trial asks: whether `added` to `base` moves `signal`.

    Args:
        slug: of the fault.
        base: treatments of both arms.
        added: those of the treated arm only.
        signal: that should move.
        edited: whether the treated arm sees an edited source in the place of the treatments that are added.
        up: whether the signal should rise.
    """

    slug: str
    base: tuple[Value, ...]
    added: tuple[Value, ...]
    signal: str
    edited: bool = False
    up: bool = False


@dataclass
class Trial:
    """Hold the outcome of a trial.

    Args:
        verdict: confirmed, refuted or unclear.
        reason: why it is unclear, where that is not a matter of the figures.
        effect: on the signal; None where it was not measured.
        validation: on validation; None where that was not measured.
        pairs: one per seed: control's level, treated's level, effect, after `steps` steps.
        end: of the first pair, after all steps that were taken.
        treated: first treated repetition, to diagnose again.
    """

    question: Question
    verdict: str = UNCLEAR
    reason: str = ""
    effect: Effect | None = None
    validation: Effect | None = None
    pairs: list[dict[str, float]] = field(default_factory=list)
    end: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    treated: Run | None = None


class Pairs:
    """Run the pairs of one question, the watched run serving as the first control where it can.

    Args:
        plan: how the run is repeated.
        watched: the watched run.
        question: what is asked.
        workers: repetitions at once.
        look: whether experiments are made in the first treated repetition, to diagnose it again.
    """

    def __init__(self, plan: Plan, watched: Run, question: Question, workers: int = 1, *, look: bool = False) -> None:
        self.plan, self.question, self.workers, self.look = plan, question, workers, look
        self.watched = Arm(watched, plan.index)

    def run(self, number: int) -> tuple[Arm, Arm]:
        """Return control and treated of one seed."""
        treated = self.question.base if self.question.edited else (*self.question.base, *self.question.added)
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            try:
                second = pool.submit(run_arm, self.plan, treated, number, self.question.edited, self._work(number))
                first = pool.submit(run_arm, self.plan, self.question.base, number) if number or self.question.base else None
                if first is None and (second.result().training is None or same_start(self.watched.training, second.result().training)):
                    return self.watched, second.result()
                return (first or pool.submit(run_arm, self.plan, (), number)).result(), second.result()
            except BaseException:
                end_all()
                raise

    def _work(self, number: int) -> WorkUp | None:
        control, asked = self.watched.training, self.question
        if number or not self.look or control is None:
            return None
        names = frozenset(value["name"] for value in (*asked.base, *asked.added))
        return WorkUp(control, self.plan.index, asked.signal, asked.up, self.plan.steps, names, self.plan.until)


def same_start(watched: Training | None, repeated: Training | None) -> bool:
    """Tell whether a repetition began as the watched run did: on the same rows, or with the same loss."""
    if watched is None or repeated is None:
        return False
    for name in ("loss", "backward_value"):
        one, other = (training.signals.get(name) for training in (watched, repeated))
        if one is not None and other is not None and len(one) and len(other) and one.first == other.first:
            return True
    rows = [training.rows.get("row_hashes", []) for training in (watched, repeated)]
    return bool(rows[0] and rows[1]) and rows[0][0].step == rows[1][0].step and rows[0][0].get("hashes") == rows[1][0].get("hashes")


def run_trial(pairs: Pairs, say: Callable[[str], None] = lambda words: None) -> Trial:
    """Ask a question by pairs, until its answer is clear, the pairs are used up, or the time is.

    The first pair takes all steps of the plan; the others as many as showed most of its effect.

    Args:
        pairs: of the question.
        say: is told how it goes.
    """
    began, question = time.monotonic(), pairs.question
    trial, planned = Trial(question, steps=pairs.plan.steps), pairs.plan.steps
    seen: list[tuple[Training, Training]] = []
    last = 0.0  # seconds of a step in the last pair, its start included
    for number in range(MOST):
        if pairs.plan.left < last * trial.steps:
            trial.reason = "the time was up before the effect was clear"
            break
        before, given = time.monotonic(), pairs.plan.steps
        control, treated = pairs.run(number)
        last = (time.monotonic() - before) / given
        trial.steps = min(trial.steps, _reached(control, treated, trial.steps))
        trial.reason = _unusable(control, treated, question, trial.steps)
        if trial.reason or control.training is None or treated.training is None:
            break
        seen.append((control.training, treated.training))
        if not number:
            _first(trial, control.training, treated)
            pairs.plan = replace(pairs.plan, steps=trial.steps)
        _weigh(trial, seen)
        if trial.verdict == REFUTED and trial.steps < planned and (control.cut or treated.cut):
            trial.reason = f"the time was up after {trial.steps} of {planned} steps, which show no effect yet"
            break
        levels = trial.pairs[-1]
        say(f"{question.slug}: pair {number + 1}, {question.signal} {levels['control']:.4g} untreated, {levels['treated']:.4g} treated")
        if len(seen) >= FEWEST and trial.verdict != UNCLEAR:
            break
    trial.seconds = round(time.monotonic() - began, 3)
    trial.verdict = UNCLEAR if trial.reason else trial.verdict
    return trial


def _first(trial: Trial, control: Training, treated: Arm) -> None:
    """Keep what the first pair showed after all steps, and how many steps show most of it."""
    assert treated.training is not None
    signal, steps = trial.question.signal, trial.steps
    found = compared(signal, control, treated.training, steps, up=trial.question.up)
    assert found is not None  # `_unusable` has looked
    trial.end = {"control": found[0], "treated": found[1], "effect": found[2], "steps": steps}
    trial.curves, trial.treated = _curves(control, treated.training, steps), treated.run
    for share in SHARES:
        fewer = int(steps * share)
        part = compared(signal, control, treated.training, fewer, up=trial.question.up) if fewer >= LEAST_STEPS else None
        if part is not None and part[2] >= max(MOST_OF_IT * found[2], CLEAR):
            trial.steps = fewer
            return


def _weigh(trial: Trial, seen: Sequence[tuple[Training, Training]]) -> None:
    """Work out effects, intervals and the verdict from all pairs, at the same step."""
    signal = trial.question.signal
    found = [compared(signal, *pair, trial.steps, up=trial.question.up) for pair in seen]
    known = [(number, each) for number, each in enumerate(found) if each is not None]
    trial.pairs = [{"seed": number, "control": each[0], "treated": each[1], "effect": each[2]} for number, each in known]
    trial.effect = effect_of([each[2] for _, each in known])
    # Where the loss should rise, since it is too good to be true, validation is so as well; where classes are weighed anew, a validation
    # that weighs them as they come is best where the frequent one is answered alone.
    told = signal not in ("validation", "loss_call") and not (trial.question.up and signal == "loss")
    unseen = [compared("validation", *pair, trial.steps) for pair in seen] if told else []
    trial.validation = effect_of([each[2] for each in unseen if each is not None]) if any(unseen) else None
    trial.verdict = verdict(trial.effect, trial.validation)


def _reached(control: Arm, treated: Arm, steps: int) -> int:
    """Return how many steps both arms took: one that was cut short is compared with the other at its last step."""
    cut = [arm.training.steps for arm in (control, treated) if arm.cut and arm.training is not None]
    return min([steps, *cut])


def _unusable(control: Arm, treated: Arm, question: Question, steps: int) -> str:
    """Say why a pair tells nothing; empty where it does."""
    for name, arm in (("treated", treated), ("untreated", control)):
        if arm.training is None:
            return f"{name}: {arm.reason or 'it did not reach this training'}"
    if steps < LEAST_CUT and (control.cut or treated.cut):
        return f"the repetition ran out of time after {steps} steps"
    idle = [value["name"] for value in question.added if value["name"] not in treated.treated]
    if idle and not question.edited:
        return f"the treatment found nothing to change: {', '.join(idle)}"
    assert control.training is not None
    assert treated.training is not None
    if compared(question.signal, control.training, treated.training, steps) is None:
        return f"{question.signal.replace('_', ' ')} was not recorded in both arms within {steps} steps"
    return ""


def _curves(control: Training, treated: Training, steps: int) -> dict[str, list[tuple[int, float]]]:
    return {"control": _curve(control, steps), "treated": _curve(treated, steps)}


def _curve(training: Training, steps: int) -> list[tuple[int, float]]:
    loss = training.signals.get("loss")
    if loss is None:
        return []
    part = loss.between(0, steps)
    kept = np.unique(np.linspace(0, len(part) - 1, min(CURVE_POINTS, len(part))).astype(int))
    return [(int(part.steps[i]), float(part.values[i])) for i in kept]


def as_dict(trial: Trial, safety: str) -> dict[str, Any]:
    """Return a trial as the report holds it."""
    effect, unseen = trial.effect, trial.validation
    return {
        "verdict": trial.verdict,
        "reason": trial.reason,
        "treatments": [dict(value) for value in trial.question.added],
        "under": [value["name"] for value in trial.question.base],
        "safety": safety,
        "signal": trial.question.signal,
        "direction": "up" if trial.question.up else "down",
        "effect": vars(effect) if effect else None,
        "validation": vars(unseen) if unseen else None,
        "pairs": trial.pairs,
        "end": trial.end,
        "steps": trial.steps,
        "seconds": trial.seconds,
        "curves": trial.curves,
    }
