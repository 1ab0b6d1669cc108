"""What a report shows of the trial of a finding: what was tried, what came of it, at what cost; the curves of both arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossdoctor.core.diagnosis import Diagnosis, Finding
from lossdoctor.report import view, words

Curve = list[tuple[int, float]]
# What the signals of trials are called where their name says too little.
_SIGNALS = {
    "validation": "loss on unseen rows, or share of wrong answers,",
    "wait_share": "share of waiting",
    "call_value": "main loss",
    "loss_call": "loss as a share of guessing's",
    "backward_graph": "number of graphs that are kept",
    "grad_norms": "gradient of the first layers beside the last",
    "step_time": "time of a step",
    "memory": "growth of memory",
}


def summary(finding: Finding) -> str:
    """Say in one line what a trial showed; empty where there was none.

    Example:
        >>> pair = {"seed": 0, "control": 2.3, "treated": 0.1, "effect": 0.96}
        >>> trial = {"verdict": "confirmed", "treatments": [{"name": "clip"}], "signal": "loss", "pairs": [pair], "steps": 90}
        >>> trial["end"] = {"control": 2.3, "treated": 0.1, "effect": 0.96, "steps": 400}
        >>> summary(Finding("LOP001", "zero-grad-missing", "Gradients pile up", "LOP", trial=trial))
        'confirmed: with clip the loss is 0.1, without 2.3 (step 400); 1 pair of 90 steps, seeds shifted by 0'
    """
    trial = finding.trial or {}
    if not trial.get("verdict"):
        return ""
    parts = [_figures(trial), _effect(trial), words.clean(trial.get("reason") or ""), _cost(trial)]
    return f"{words.clean(trial['verdict'])}: " + "; ".join(part for part in parts if part)


def _figures(trial: Mapping[str, Any]) -> str:
    end = trial.get("end")
    if not end:
        return ""
    names = " and ".join(words.clean(value["name"]) for value in trial.get("treatments") or []) or "the edit"
    signal = str(trial.get("signal", ""))
    signal = _SIGNALS.get(signal) or words.clean(signal.replace("_", " "))
    return f"with {names} the {signal} is {words.number(end['treated'])}, without {words.number(end['control'])} (step {end['steps']:,})"


def _effect(trial: Mapping[str, Any]) -> str:
    effect = trial.get("effect")
    if not effect or len(trial.get("pairs") or []) < 2:
        return ""
    words_for = ("higher", "lower") if trial.get("direction") == "up" else ("better", "worse")
    moved = words_for[effect["mean"] < 0]
    low, high = (
        sorted((abs(effect["low"]), abs(effect["high"]))) if effect["low"] * effect["high"] >= 0 else (effect["low"], effect["high"])
    )
    return f"{abs(effect['mean']):.0%} {moved} (95% interval {low:.0%} to {high:.0%})"


def _cost(trial: Mapping[str, Any]) -> str:
    pairs, steps, seconds = trial.get("pairs") or [], trial.get("steps"), trial.get("seconds")
    took = f" in {words.seconds(seconds)}" if seconds else ""
    if not pairs or not steps:
        return took.strip()
    seeds = ", ".join(str(pair["seed"]) for pair in pairs)
    return f"{len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'} of {steps:,} steps, seeds shifted by {seeds}{took and ','}{took}"


def curves(finding: Finding) -> dict[str, Curve]:
    """Return the curves of a trial by arm: `control` and `treated`; empty where there are none."""
    found = (finding.trial or {}).get("curves") or {}
    return {arm: [(int(step), float(value)) for step, value in found[arm]] for arm in ("control", "treated") if len(found.get(arm, ())) > 1}


def tried(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings of which a trial was made, causes first."""
    order = [each.slug for each in view.causes(diagnosis)]
    found = [each for each in diagnosis.findings if summary(each)]
    return sorted(found, key=lambda each: order.index(each.slug) if each.slug in order else len(order))
