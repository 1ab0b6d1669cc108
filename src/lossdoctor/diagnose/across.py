"""One answer for a run of several trainings: phases, repeats, roles (DESIGN "What a step, a training, a validation is").

Phases move the same parameters one after another: the last decides, unless an earlier one spoilt it. Repeats are the same
model again on fresh parameters: most of them or the last decide, and a failing minority is advice. Different models in one
script are works of their own: a fault in any of them counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.run import Training

_STATUS = ("unknown", "absent", "broke", "suspected", "present")
_SEVERITY = ("advice", "warning", "error")
_DECIDED = ("present", "suspected", "absent")
# A training under half as long as the longest is a trial, a warm-up or a probe beside the main one (starting value).
_MAIN_SHARE = 0.5


def weight(finding: Finding) -> tuple[int, int, float]:
    """Order findings of one fault by how much they say."""
    return (_STATUS.index(finding.status), _SEVERITY.index(finding.severity), finding.probability)


def views(training: Training) -> list[Training]:
    """Return what the rules look at: the training, or each of its roles.

    Roles that step on one common loss (two parameter groups in two optimisers) look like plain trainings. Roles with losses
    of their own (generative pairs) keep `roles` set: there a loss that rises may be a good sign, so rules that read the
    loss's course stay silent where `training.roles` is not empty.
    """
    if not training.roles:
        return [training]
    rivals = [] if _one_loss(training.roles) else training.roles
    return [_view(role, training, rivals) for role in training.roles]


def _view(role: Training, training: Training, rivals: list[Training]) -> Training:
    return dataclasses.replace(
        role,
        index=training.index,
        roles=rivals,
        phase_of=training.phase_of,
        experiments=training.experiments,
        run_facts=training.run_facts,
    )


def _one_loss(roles: Sequence[Training]) -> bool:
    losses = [role.signals["loss"].values for role in roles if "loss" in role.signals]
    return all(len(loss) == len(losses[0]) and np.allclose(loss, losses[0], equal_nan=True) for loss in losses[1:])


def main_training(trainings: Sequence[Training]) -> Training | None:
    """Return the training that the figures of a run are taken from: the last that is about as long as the longest."""
    longest = max((training.steps for training in trainings), default=0)
    return next((training for training in reversed(trainings) if training.steps >= _MAIN_SHARE * longest), None)


def settle(trainings: Sequence[Training], findings: Sequence[Finding], failed: Sequence[bool]) -> Finding:
    """Give one answer from those of every training.

    Args:
        trainings: those of the run, in order.
        findings: what one fault says of each.
        failed: whether each did not learn.
    """
    works: dict[tuple[str, ...], list[Finding]] = {}
    for chain in _chains(trainings):
        moved = [i for i in chain if not _only_looked(trainings[i])] or chain
        answer = _of_phases([findings[i] for i in moved], failed[moved[-1]])
        works.setdefault(_names(trainings[chain[0]]), []).append(answer)
    return max((_of_repeats(answers) for answers in works.values()), key=weight)


def _chains(trainings: Sequence[Training]) -> list[list[int]]:
    """Return the positions of the trainings, phases of one another together."""
    chains: list[list[int]] = []
    for position, training in enumerate(trainings):
        chain = next((chain for chain in chains if training.phase_of in [trainings[i].index for i in chain]), None)
        if chain is None:
            chains.append([position])
        else:
            chain.append(position)
    return chains


def _only_looked(training: Training) -> bool:
    """Tell whether gradients of trained weights were taken afterwards (saliency, adversarial inputs) and nothing was moved."""
    moved = any((row.get("changed") or 0) > 0 for row in training.rows.get("coverage", []))
    return training.phase_of is not None and training.fact("what") == "manual" and not training.fact("optimizers_idle") and not moved


def _names(training: Training) -> tuple[str, ...]:
    parts = training.roles or [training]
    return tuple(sorted(parameter.get("name", "") for part in parts for parameter in part.fact("parameters") or ()))


def _of_phases(findings: Sequence[Finding], last_failed: bool) -> Finding:
    decided = [finding for finding in findings if finding.status in _DECIDED]
    if not decided:
        return findings[-1]
    present = [finding for finding in decided if finding.status == "present"]
    if decided[-1].status != "absent" or not present:
        return decided[-1]
    return present[-1] if last_failed else dataclasses.replace(present[-1], severity="advice")


def _of_repeats(findings: Sequence[Finding]) -> Finding:
    decided = [finding for finding in findings if finding.status in _DECIDED]
    if not decided:
        return findings[-1]
    if decided[-1].status == "present":
        return decided[-1]
    full = [finding for finding in decided if finding.status == "present" and finding.severity != "advice"]
    shown = [finding for finding in decided if finding.status == "present"]
    leaning = [finding for finding in decided if finding.status != "absent"]
    if 2 * len(full) > len(decided):
        return full[-1]
    if shown:
        return dataclasses.replace(shown[-1], severity="advice")
    return leaning[-1] if decided[-1].status == "suspected" or 2 * len(leaning) > len(decided) else decided[-1]
