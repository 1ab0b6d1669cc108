"""Turn the treatment that a fault names into one for a given run: its parameters come from what was measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Treatment
from lossdoctor.core.run import Series, Training
from lossdoctor.derive.generalisation import generalisation
from lossdoctor.derive.update import update_sizes

Value = dict[str, Any]

# A cache pays from the second time on that a row is asked for (starting values, both).
TWICE, MOST_WORKERS = 2.0, 4
DEAD_AT_START = 0.6  # share of a layer's units; healthy starts have at most .24 (field guide, "Measured")
SMALL_PENALTY = 0.01  # gradient of the penalties over that of the main term at the start, once they are cut (starting value)


class NoTreatment(Exception):
    """Say why a fault's treatment cannot be tried on a run."""


def fitted(treatment: Treatment, finding: Finding, training: Training) -> Value:
    """Return a treatment with its parameters worked out.

    Args:
        treatment: of the fault.
        finding: what the fault said of the run.
        training: that shows it.

    Raises:
        NoTreatment: it is advice only, nobody interprets it, or a measurement is missing.

    Example:
        >>> finding = Finding("LOP001", "zero-grad-missing", "Gradients pile up", "LOP")
        >>> fitted(Treatment("clear_gradients"), finding, Training())
        {'name': 'clear_gradients', 'parameters': {}}
    """
    from lossdoctor.trials.treatments import names

    if treatment.safety == "advice-only":
        raise NoTreatment("its cure needs something that the script does not have")
    fit = _FITS.get(treatment.name)
    value = fit(treatment.parameters, finding, training) if fit else {"name": treatment.name, "parameters": dict(treatment.parameters)}
    if value["name"] not in names():
        raise NoTreatment(f"no treatment is called {treatment.name!r} yet")
    return value


def _rate(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Scale the rate so that the largest step before it went wrong changes weights by the wanted share."""
    sizes = update_sizes(training) if training.has("update_ratios") else Series.of([])
    onset = finding.evidence[0].steps[0] if finding.evidence else 0
    early = sizes.between(0, onset + 1) if len(sizes.between(0, onset + 1)) else sizes
    known = early.values[np.isfinite(early.values) & (early.values > 0)]
    if not len(known):
        raise NoTreatment("the size of the first updates is not known")
    return {"name": "scale_rate", "parameters": {"factor": float(parameters["update_ratio"]) / float(known.max())}}


def _step(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Tell an optimiser that never steps from one that steps on cleared gradients."""
    return {"name": "step_after_backward", "parameters": {"idle": training.fact("what") == "manual"}}


def _targets(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    rows = [row for row in training.rows.get("loss_call", []) if row.get("target_std") and row.get("target_mean") is not None]
    if not rows:
        raise NoTreatment("mean and spread of the targets are not known")
    mean, spread = (float(np.median([row[name] for row in rows])) for name in ("target_mean", "target_std"))
    return {"name": "scale_targets", "parameters": {"mean": mean, "spread": spread, "squared": rows[0]["kind"] == "mse_loss"}}


def _early(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """End learning where unseen rows were best."""
    try:
        found = generalisation(training)
    except SignalMissing:
        found = None
    if found is None:
        raise NoTreatment("unseen rows were not looked at often enough to tell where they were best")
    return {"name": "stop_early", "parameters": {"steps": found.course.best_step}}


def _parts(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Divide by the usual number of backward calls of a step."""
    counts = training.signals.get("backwards", Series.of([])).finite().values
    if not (counts > 0).any():
        raise NoTreatment("how many backward calls make a step is not known")
    return {"name": "divide_losses", "parameters": {"parts": int(np.median(counts[counts > 0]))}}


def _feed(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Keep in memory what comes again; what never does is prepared ahead, where there are cores for it."""
    rows = (training.fact("loader") or {}).get("rows")
    sizes = training.signals.get("batch_rows", Series.of([])).finite().values
    cores = os.cpu_count() or 1
    if rows and len(sizes) and float(sizes.sum()) < TWICE * float(rows) and cores > 1:
        return {"name": "load_in_workers", "parameters": {"workers": min(MOST_WORKERS, cores)}}
    return {"name": "cache_data", "parameters": {}}


def _revive(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Start anew where units are dead at the first look; where they die later, let a gradient pass through them."""
    shares = training.signals.get("zero_rows", Series.of([])).values
    first = np.asarray(shares[0], dtype=float) if len(shares) else np.array([])
    begun = first[np.isfinite(first)]
    dead = bool(len(begun)) and float(begun.max()) > DEAD_AT_START
    return {"name": "reinitialise" if dead or not len(begun) else "leaky_activations", "parameters": {}}


def _fill(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Fill what is not finite, and the code for missing values that the batches hold."""
    items = [item for row in training.rows.get("batch", []) for item in row.get("inputs") or ()]
    codes = {float(item["sentinel"]) for item in items if item.get("sentinel") is not None and (item.get("sentinel_share") or 0) > 0}
    return {"name": "finite_inputs", "parameters": {"code": codes.pop()} if len(codes) == 1 else {}}


def _penalty(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Bring the gradient of the penalties down to a share of the main term's."""
    share = float(training.found("terms").get("share") or 0.0)
    if not 0 < share < 1:
        raise NoTreatment("how large the terms of the loss are is not known")
    return {"name": "cut_penalty", "parameters": {"factor": min(1.0, SMALL_PENALTY * (1 - share) / share)}}


def _weights(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    counts = [row["class_counts"] for row in training.rows.get("loss_call", []) if row.get("class_counts")]
    if not counts or len({len(each) for each in counts}) != 1:
        raise NoTreatment("how many rows each class has is not known")
    return {"name": "class_weights", "parameters": {"counts": [int(each) for each in np.sum(counts, axis=0)]}}


def _prepared(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Match means and spreads; inputs that validation draws anew at each pass differ in another way."""
    if any(each.signal != "validation" for each in finding.evidence):
        raise NoTreatment("its validation draws its inputs at random, which only its data set can leave off")
    return {"name": "prepare_as_training", "parameters": {}}


def _more(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Use the rows of the data set that the loader's is a part of, where it is one."""
    loader = training.fact("loader") or {}
    if not (loader.get("of") or 0) > (loader.get("rows") or 0):
        raise NoTreatment("its cure needs rows that the script does not hold")
    return {"name": "more_rows", "parameters": {}}


def _mean(parameters: Mapping[str, Any], finding: Finding, training: Training) -> Value:
    """Ask known losses for means; a sum that the script works out by itself is not reached."""
    if not any(row.get("reduction") == "sum" for row in training.rows.get("loss_call", [])):
        raise NoTreatment("it sums the loss by itself, where no treatment reaches")
    return {"name": "mean_loss", "parameters": {}}


_FITS: dict[str, Callable[[Mapping[str, Any], Finding, Training], Value]] = {
    "set_update_ratio": _rate,
    "step_after_backward": _step,
    "scale_targets": _targets,
    "stop_early": _early,
    "divide_losses": _parts,
    "feed": _feed,
    "revive": _revive,
    "finite_inputs": _fill,
    "cut_penalty": _penalty,
    "class_weights": _weights,
    "prepare_as_training": _prepared,
    "more_rows": _more,
    "mean_loss": _mean,
}
