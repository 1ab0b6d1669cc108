"""What does the trained model answer? Its classes beside those of the targets, on captured rows, in evaluation mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossdoctor.experiments.examples import examples
from lossdoctor.experiments.met import Met, meeting
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused

UNEVEN = 3.0  # largest over smallest class, from which on it is asked whether the rare ones could be told
COLLAPSED = 0.98  # share of answers that are one class
_MOST = 2000  # rows
_FEWEST = 8  # rows of a class for two folds


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how often each class is the target and the answer.

    Returns:
        `rows`; by class: `targets` and `answers` (counts), `recall` (share of its rows that are answered with it); where classes are uneven
        and nearly all answers are one: `told` (mean recall of a classical model that weighs classes alike, on rows held out).
    """
    models = replay.now()
    for model in models:
        model.eval()
    given: list[Tensor] = []
    wanted: list[Tensor] = []
    for batch in replay.batches:
        if sum(len(each) for each in wanted) >= _MOST or (wanted and deadline.over):
            break
        with torch.enable_grad():
            answer, target = _decide(meeting(replay, models, batch))
        given.append(answer)
        wanted.append(target)
    answers, targets = torch.cat(given), torch.cat(wanted)
    classes = int(max(answers.max(), targets.max())) + 1
    counts, said = (torch.bincount(each, minlength=classes) for each in (targets, answers))
    right = torch.bincount(targets[answers == targets], minlength=classes)
    facts: dict[str, Any] = {"rows": len(targets), "targets": counts.tolist(), "answers": said.tolist()}
    facts["recall"] = [float(a / b) if b else None for a, b in zip(right.tolist(), counts.tolist(), strict=True)]
    there = counts[counts > 0]
    if len(there) > 1 and there.max() > UNEVEN * there.min() and said.max() > COLLAPSED * len(targets) and not deadline.over:
        facts["told"] = _told(replay)
    return facts


def _decide(met: Met) -> tuple[Tensor, Tensor]:
    """Return answers and targets as class numbers, those that count."""
    output, target = met.output.detach().cpu(), met.target.detach().cpu()
    if output.numel() == target.numel():
        if not bool(((target == 0) | (target == 1)).all()) or (target.dim() > 1 and target.shape[1] > 1):
            raise ReplayRefused("the targets are no classes")
        middle = 0.5 if bool(((output >= 0) & (output <= 1)).all()) and "logits" not in met.kind else 0.0
        return (output.flatten() > middle).long(), target.flatten().long()
    if target.is_floating_point():
        raise ReplayRefused("the targets are no classes")
    scores, labels = output.movedim(1, -1).reshape(-1, output.shape[1]), target.reshape(-1).long()
    kept = (labels >= 0) & (labels < scores.shape[1])
    return scores[kept].argmax(1), labels[kept]


def _told(replay: Replay) -> float | None:
    """Return the mean recall over classes of a classical model on held-out rows; None where there are too few."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import cross_val_predict

    data = examples(replay)
    if data.kind != "classes":
        return None
    values, codes = np.unique(data.targets, return_inverse=True)
    if len(values) < 2 or np.bincount(codes).min() < _FEWEST:
        return None
    model = ExtraTreesClassifier(100, random_state=0, min_samples_leaf=3, class_weight="balanced")
    found = cross_val_predict(model, np.nan_to_num(data.inputs), codes, cv=3)
    return float(np.mean([(found[codes == code] == code).mean() for code in range(len(values))]))
