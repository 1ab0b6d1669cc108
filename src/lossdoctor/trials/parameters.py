"""Turn the treatment that a fault names into one for a given run: its parameters come from what was measured."""

from __future__ import annotations

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


_FITS: dict[str, Callable[[Mapping[str, Any], Finding, Training], Value]] = {
    "set_update_ratio": _rate,
    "step_after_backward": _step,
    "scale_targets": _targets,
    "stop_early": _early,
}
