"""What a curve shows, and what looks alike and is nothing: every case with noise, over several seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.readers import read

Columns = dict[str, list[float]]
SEEDS = range(4)
STEPS = np.arange(300)


def falling(chance: np.random.Generator, start: float = 2.3, end: float = 0.6, noise: float = 0.02, count: int = 300) -> np.ndarray:
    """A loss that falls and flattens, with noise in proportion to its level."""
    curve = end + (start - end) * np.exp(-np.arange(count) / (0.2 * count))
    return curve * (1 + noise * chance.normal(size=count))


def alarms(diagnosis: Diagnosis) -> list[str]:
    return [finding.slug for finding in diagnosis.present if finding.severity != "advice"]


def plain(chance: np.random.Generator) -> Columns:
    return {"loss": falling(chance).tolist()}


def warm_up_hump(chance: np.random.Generator) -> Columns:
    loss = falling(chance)
    loss[:12] *= 1 + 0.8 * np.sin(np.linspace(0, np.pi, 12))
    rates = np.minimum(STEPS / 20, 1.0) * 1e-3
    return {"loss": loss.tolist(), "lr": rates.tolist()}


def end_of_mosaic(chance: np.random.Generator) -> Columns:
    train, held_out = falling(chance, 5.0, 3.0, 0.01, 100), falling(chance, 4.0, 2.6, 0.01, 100)
    train[90:] *= 0.82
    return {"epoch": list(range(100)), "loss": train.tolist(), "val_loss": held_out.tolist()}


def rate_drop(chance: np.random.Generator) -> Columns:
    loss = falling(chance, noise=0.01)
    loss[180:] *= 0.7
    return {"loss": loss.tolist(), "lr": [0.1] * 180 + [0.01] * 120}


def length_groups(chance: np.random.Generator) -> Columns:
    return {"loss": (falling(chance) * (1 + 0.15 * (STEPS % 25) / 25)).tolist(), "epoch": (STEPS // 25).astype(float).tolist()}


def lone_batches(chance: np.random.Generator) -> Columns:
    loss = falling(chance)
    loss[[90, 170, 240]] *= 4.0
    return {"loss": loss.tolist()}


def evaluation_dips(chance: np.random.Generator) -> Columns:
    speed = 1e6 * (1 + 0.01 * chance.normal(size=300))
    speed[::25] /= 50
    return {"loss": falling(chance).tolist(), "tokens_per_second": speed.tolist()}


def generative_pair(chance: np.random.Generator) -> Columns:
    up = 0.6 + 0.3 * np.linspace(0, 1, 300)
    return {"lossD": (up + 0.05 * chance.normal(size=300)).tolist(), "lossG": (2 * up + 0.1 * chance.normal(size=300)).tolist()}


def policy(chance: np.random.Generator) -> Columns:
    reward = np.linspace(-110, -90, 300) + chance.normal(size=300)
    return {"train/loss": (-20 + 15 * chance.normal(size=300)).tolist(), "val/reward": reward.tolist()}


def slow_fine_tuning(chance: np.random.Generator) -> Columns:
    return {"loss": falling(chance, 1.75, 1.36, 0.03).tolist()}


def converged(chance: np.random.Generator) -> Columns:
    train, held_out = falling(chance, 2.3, 0.4, 0.02, 60), falling(chance, 2.3, 0.43, 0.02, 60)
    return {"epoch": list(range(60)), "loss": train.tolist(), "val_loss": held_out.tolist()}


def warm_restarts(chance: np.random.Generator) -> Columns:
    bumps = 0.12 * np.exp(-(STEPS % 100) / 15)
    return {"loss": (falling(chance) + bumps).tolist(), "lr": (1e-3 * (1 + np.cos(np.pi * (STEPS % 100) / 100)) / 2).tolist()}


def no_validation_yet(chance: np.random.Generator) -> Columns:
    return {"loss": falling(chance, 9.2, 3.0, 0.01).tolist(), "val_loss": [*falling(chance, 9.2, 3.1, 0.01)[:2].tolist()]}


TRAPS = (plain, warm_up_hump, end_of_mosaic, rate_drop, length_groups, lone_batches, evaluation_dips, generative_pair, policy)
TRAPS += (slow_fine_tuning, converged, warm_restarts, no_validation_yet)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_what_looks_alike_raises_no_alarm(trap: Callable[[np.random.Generator], Columns], seed: int) -> None:
    diagnosis = read(trap(np.random.default_rng(seed)))
    assert alarms(diagnosis) == []
    assert not {"plateau-then-drop", "resume-without-state"} & {finding.slug for finding in diagnosis.present}


def overfits(chance: np.random.Generator) -> Columns:
    train = falling(chance, 2.3, 0.02, 0.02, 60)
    held_out = 0.8 + 1.5 * np.exp(-np.arange(60) / 6) + 0.02 * np.maximum(np.arange(60) - 18, 0) + 0.01 * chance.normal(size=60)
    return {"epoch": list(range(60)), "loss": train.tolist(), "val_loss": held_out.tolist()}


def flat_at_chance(chance: np.random.Generator) -> Columns:
    loss = np.log(10) * (1 + 0.004 * chance.normal(size=60))
    return {
        "epoch": list(range(60)),
        "loss": loss.tolist(),
        "val_loss": loss.tolist(),
        "val_acc": (0.1 + 0.005 * chance.normal(size=60)).tolist(),
    }


def flat_at_word_frequencies(chance: np.random.Generator) -> Columns:
    return {"loss": (7.65 * (1 + 0.007 * chance.normal(size=220))).tolist()}


def diverges(chance: np.random.Generator) -> Columns:
    loss = falling(chance, 9.0, 5.0, 0.01)
    loss[150:] = 6.4 + 1.5 * np.exp(-(STEPS[150:] - 150) / 20) + 0.05 * chance.normal(size=150)
    return {"loss": loss.tolist()}


def becomes_nan(chance: np.random.Generator) -> Columns:
    loss = falling(chance)
    loss[200:] = np.nan
    return {"loss": loss.tolist()}


def nan_in_disguise(chance: np.random.Generator) -> Columns:
    loss, norms = falling(chance), np.abs(chance.normal(1.0, 0.1, size=300))
    loss[200:], norms[200:] = 0.0, np.nan
    return {"step": (STEPS * 10.0).tolist(), "loss": loss.tolist(), "grad_norm": norms.tolist()}


def spike_that_costs(chance: np.random.Generator) -> Columns:
    loss = falling(chance)
    loss[120:150] += 6.0 * np.exp(-np.arange(30) / 8)
    return {"loss": loss.tolist()}


def noisy(chance: np.random.Generator) -> Columns:
    return {"loss": falling(chance, 9.2, 1.8, 0.16).tolist()}


def easier_validation(chance: np.random.Generator) -> Columns:
    train = falling(chance, 5.4, 3.3, 0.02, 100)
    return {"epoch": list(range(100)), "loss": train.tolist(), "val_loss": (0.85 * falling(chance, 5.4, 3.3, 0.02, 100)).tolist()}


def plateau(chance: np.random.Generator) -> Columns:
    loss = falling(chance, 3.0, 0.75, 0.02)
    loss[200:] *= 0.6
    return {"loss": loss.tolist()}


def stairs(chance: np.random.Generator) -> Columns:
    epoch = STEPS // 75
    level = np.array([1.6, 1.1, 0.6, 0.3])[epoch]
    return {"epoch": epoch.astype(float).tolist(), "loss": (level * (1 + 0.02 * chance.normal(size=300))).tolist()}


def still_falling(chance: np.random.Generator) -> Columns:
    return {"loss": (2.3 * 0.993**STEPS * (1 + 0.005 * chance.normal(size=300))).tolist()}


def scale_collapses(chance: np.random.Generator) -> Columns:
    scale = 65536.0 * 0.5 ** np.maximum(STEPS - 120, 0).clip(0, 300).astype(float)
    return {"loss": falling(chance).tolist(), "loss_scale": np.maximum(scale, 1.0).tolist()}


def both_low(chance: np.random.Generator) -> Columns:
    train = (1.5 + 0.4 * np.exp(-np.arange(80) / 8)) * (1 + 0.004 * chance.normal(size=80))
    accuracy = 0.38 - 0.2 * np.exp(-np.arange(80) / 8)
    return {
        "epoch": list(range(80)),
        "loss": train.tolist(),
        "val_loss": (train + 0.01).tolist(),
        "acc": accuracy.tolist(),
        "val_acc": (accuracy - 0.01).tolist(),
    }


SHOWN = {
    overfits: {"overfitting"},
    flat_at_chance: {"loss-flat"},
    flat_at_word_frequencies: {"loss-flat"},
    diverges: {"loss-diverged"},
    becomes_nan: {"loss-not-finite"},
    nan_in_disguise: {"loss-not-finite"},
    spike_that_costs: {"loss-spike"},
    noisy: {"loss-noisy"},
    easier_validation: {"val-better-than-train"},
    plateau: {"plateau-then-drop"},
    stairs: {"memorisation-staircase"},
    still_falling: {"too-few-epochs"},
    scale_collapses: {"fp16-overflow"},
    both_low: {"underfitting"},
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.__name__)
def test_what_a_curve_shows_is_the_verdict(shown: Callable[[np.random.Generator], Columns], seed: int) -> None:
    diagnosis = read(shown(np.random.default_rng(seed)))
    assert diagnosis.verdict in SHOWN[shown]


def test_overfitting_names_its_best_step() -> None:
    finding = read(overfits(np.random.default_rng(0))).finding("overfitting")
    assert finding is not None
    assert any("step 1" in str(item.seen) or "step 2" in str(item.seen) for item in finding.evidence)


def test_a_verdict_of_a_curve_says_how_sure_it_is_and_what_would_decide() -> None:
    diagnosis = read(flat_at_word_frequencies(np.random.default_rng(0)))
    assert any("a curve alone gives 85%" in note for note in diagnosis.notes)
    assert diagnosis.next_step.startswith("lossdoctor ")


def test_zero_with_a_finite_gradient_is_no_nan_in_disguise() -> None:
    assert "loss-not-finite" not in alarms(read({"loss": [0.0] * 9, "grad_norm": [0.5] * 9, "reward": [0.3] * 9}))


def test_a_machine_that_waits_is_told_without_an_alarm() -> None:
    columns = {"loss": falling(np.random.default_rng(0)).tolist(), "iter_time": [1.0] * 300, "data_time": [0.9] * 300}
    diagnosis = read(columns)
    assert alarms(diagnosis) == []
    assert any("waited for data for 90%" in note for note in diagnosis.notes)


def test_a_gradient_that_grows_and_a_rate_that_has_gone_are_told() -> None:
    loss = falling(np.random.default_rng(0)).tolist()
    notes = read({"loss": loss, "grad_norm": np.linspace(0.5, 9.0, 300).tolist(), "lr": [1e-3] * 150 + [1e-7] * 150}).notes
    assert any("gradient norm grew" in note for note in notes)
    assert any("for the last 50% of the run the rate was below a hundredth" in note for note in notes)


def test_throughput_that_falls_is_told_and_dips_are_not() -> None:
    chance = np.random.default_rng(0)
    falls = {"loss": falling(chance).tolist(), "throughput": np.linspace(1000, 400, 300).tolist()}
    assert any("throughput fell to" in note for note in read(falls).notes)
    assert not any("throughput fell" in note for note in read(evaluation_dips(chance)).notes)
