"""Is there anything to learn in these labels? A few classical models and a small network, judged on held-out captured rows.

Each alone errs (a network may overfit at once, a linear model may not see the pattern), so the better of the two counts.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossdoctor.experiments.examples import Examples, Floats, examples
from lossdoctor.experiments.mistakes import mistakes
from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused

RUNS_THE_MODEL = False
_FEWEST = 40  # held-out rows below which nothing is measured at all; the rule asks for more
_FEWEST_IN_ALL = 12  # rows of which each is left out in turn; fewer say nothing
_FEWEST_TOKENS = 300  # the same where every position of a row is a question of its own
_EPOCHS = 60
_WIDTH = 64
_HIDDEN = 0.6  # share of the inputs at the places that count which are one token (starting value; a mask stands at eight of ten)
_FEWEST_VALUES, _MOST_VALUES = 4, 50  # whole numbers that may be names or amounts
_ORDERS = 200


def measure(replay: Replay, deadline: Deadline, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return how well held-out rows can be predicted from the captured ones.

    Returns:
        `rows`, `held_out`, `kind`; `prior` (score of the constant answer), `classical` (best score), `classical_name`,
        `noise` (see `mistakes`, where the classes can be learnt), `values` (distinct whole targets), `own_order`, `best_order` and
        `order_rank` (R2 of a linear model for the targets as they are numbered, of the best of many numberings, and the share of them that
        it beats: names have no order),
        `network_loss` (best held-out loss of the network over the prior's loss), `spread` (standard error of the scores).
        Scores are accuracies, or R2 for numbers; for tokens the bigram loss over the unigram loss in `network_loss`.
    """
    data = examples(replay)
    if data.kind == "one_hot":
        data = Examples("classes", data.inputs, data.targets.argmax(1).astype(np.float64), data.held_out, data.integer)
    facts: dict[str, Any] = {"rows": len(data), "held_out": int(data.held_out.sum()), "kind": data.kind}
    answers = facts["held_out"] * (data.targets.shape[1] if data.kind == "tokens" else 1)
    if answers < (_FEWEST if data.kind != "tokens" else _FEWEST_TOKENS) or not data.held_out.any() or data.held_out.all():
        return facts if data.kind == "tokens" or len(data) < _FEWEST_IN_ALL else facts | _one_by_one(data)
    if data.kind == "tokens":
        return facts | _tokens(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence warnings of short fits
        classical = _classical(data, deadline)
    return facts | classical | _network(data, deadline)


def _features(data: Examples) -> Floats:
    """Standardise numbers; turn token ids into counts beside their positions."""
    if data.integer:
        size = int(data.inputs.max()) + 1 if len(data.inputs) else 1
        if 1 < size <= 2000 and data.inputs.min() >= 0:
            whole = data.inputs.astype(np.int64)
            counts = np.zeros((len(whole), size))
            np.add.at(counts, (np.repeat(np.arange(len(whole)), whole.shape[1]), whole.ravel()), 1.0)
            if whole.shape[1] * size <= 4096:  # few enough for each position's own indicator
                one_hot = np.zeros((len(whole), whole.shape[1] * size))
                columns = whole + np.arange(whole.shape[1]) * size
                np.put_along_axis(one_hot, columns, 1.0, axis=1)
                return one_hot
            return counts
    clean = np.nan_to_num(data.inputs, posinf=0.0, neginf=0.0)
    train = clean[~data.held_out]
    deviation = train.std(0)
    scaled: Floats = (clean - train.mean(0)) / np.where(deviation > 1e-12, deviation, 1.0)
    return scaled


def _classical(data: Examples, deadline: Deadline) -> dict[str, Any]:
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    features, train, test = _features(data), ~data.held_out, data.held_out
    targets = data.targets
    models: list[Any]
    if data.kind == "classes":
        values, counts = np.unique(targets[train], return_counts=True)
        # Few rows are held out, so the share of the commonest class among them may be low by luck.
        prior = max(float((targets[test] == values[counts.argmax()]).mean()), float(counts.max() / counts.sum()))
        if len(values) < 2:
            return {"prior": prior}
        models = [KNeighborsClassifier(5), LogisticRegression(max_iter=200), ExtraTreesClassifier(100, random_state=0)]
        spread = math.sqrt(max(prior * (1 - prior), 0.01) / test.sum())
    else:
        prior, spread = 0.0, 1.0 / math.sqrt(test.sum())
        models = [KNeighborsRegressor(5), RidgeCV(), ExtraTreesRegressor(100, random_state=0)]
    best, name = -math.inf, ""
    for model in models:
        if deadline.over:
            raise ReplayRefused("the time was over before all models were fitted")
        score = float(model.fit(features[train], targets[train]).score(features[test], targets[test]))
        if score > best:
            best, name = score, type(model).__name__
    facts = {"prior": prior, "classical": best, "classical_name": name, "spread": spread}
    facts |= _names_or_amounts(data, features) if data.kind == "classes" and not deadline.over else {}
    learnable = data.kind == "classes" and best > prior + 3 * spread and not deadline.over
    return facts | ({"noise": _noise(features, targets)} if learnable else {})


def _names_or_amounts(data: Examples, features: Floats) -> dict[str, Any]:
    """Ask whether the order of whole targets means anything: does the numbering that they have fit a linear model better than others?

    One ridge regression of the indicators gives the answer for every numbering, since it is linear in them.
    """
    from sklearn.linear_model import RidgeCV

    values, codes = np.unique(data.targets, return_inverse=True)
    if not _FEWEST_VALUES <= len(values) <= _MOST_VALUES:
        return {}
    train, test = ~data.held_out, data.held_out
    shares = RidgeCV().fit(features[train], np.eye(len(values))[codes[train]]).predict(features[test])
    generator = np.random.default_rng(0)
    orders = [values, *(generator.permutation(values) for _ in range(_ORDERS))]
    fits = [
        1.0 - float(((order[codes[test]] - shares @ order) ** 2).mean()) / max(float(order[codes[test]].var()), 1e-12) for order in orders
    ]
    rank = float(np.mean(np.array(fits[1:]) < fits[0]))
    return {"values": len(values), "own_order": fits[0], "best_order": max(fits), "order_rank": rank}


def _one_by_one(data: Examples) -> dict[str, Any]:
    """Predict each of few rows from all others, by its nearest neighbour (classes) or by ridge regression (numbers).

    Returns:
        `prior`, `classical`, `classical_name`, `spread` as for many rows: shares that are right, or R2.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import LeaveOneOut, cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier

    features = _features(Examples(data.kind, data.inputs, data.targets, np.zeros(len(data), dtype=bool), data.integer))
    if data.kind == "classes":
        said = cross_val_predict(KNeighborsClassifier(1), features, data.targets, cv=LeaveOneOut())
        prior = float(np.unique(data.targets, return_counts=True)[1].max() / len(data))
        spread = math.sqrt(max(prior * (1 - prior), 0.01) / len(data))
        return {
            "prior": prior,
            "classical": float((said == data.targets).mean()),
            "classical_name": "KNeighborsClassifier",
            "spread": spread,
        }
    model = RidgeCV(np.logspace(-2, 4, 13))
    targets = data.targets.reshape(len(data), -1)[:, 0]
    said = cross_val_predict(model, features, targets, cv=LeaveOneOut())
    score = 1 - float(((said - targets) ** 2).sum()) / max(float(((targets - targets.mean()) ** 2).sum()), 1e-12)
    return {"prior": 0.0, "classical": score, "classical_name": "RidgeCV", "spread": 1.0 / math.sqrt(len(data))}


def _noise(features: Floats, targets: Floats) -> dict[str, Any]:
    """Return what out-of-fold predictions of all rows get wrong, by how sure they were."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import cross_val_predict

    _, codes = np.unique(targets, return_inverse=True)
    if np.bincount(codes).min() < 3:
        return {}
    model = ExtraTreesClassifier(100, random_state=0, min_samples_leaf=2)
    return mistakes(cross_val_predict(model, features, codes, cv=3, method="predict_proba"), codes)


def _network(data: Examples, deadline: Deadline) -> dict[str, Any]:
    """Train a small network on standardised inputs; return its best held-out loss over that of the constant answer."""
    torch.manual_seed(0)
    inputs = torch.from_numpy(_features(data)).float()
    test = torch.from_numpy(data.held_out)
    if data.kind == "classes":
        _, codes = np.unique(data.targets, return_inverse=True)
        targets, outputs = torch.from_numpy(codes).long(), int(codes.max()) + 1
        shares = torch.bincount(targets[~test], minlength=outputs).float() + 0.5
        prior = float(nn.functional.cross_entropy((shares / shares.sum()).log().expand(int(test.sum()), -1), targets[test]))
        loss: Any = nn.functional.cross_entropy
    else:
        targets = torch.from_numpy(data.targets).float().reshape(len(data), -1)
        centre, scale = targets[~test].mean(0), targets[~test].std(0).clamp_min(1e-12)
        targets, outputs = (targets - centre) / scale, targets.shape[1]
        prior, loss = float((targets[test] ** 2).mean()), nn.functional.mse_loss
    model = nn.Sequential(nn.Linear(inputs.shape[1], _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, outputs))
    best, train_loss = _fit_network(model, loss, inputs, targets, test, deadline)
    return {"network_loss": best / max(prior, 1e-12), "prior_loss": prior, "network_train_loss": train_loss / max(prior, 1e-12)}


def _fit_network(model: nn.Module, loss: Any, inputs: Tensor, targets: Tensor, test: Tensor, deadline: Deadline) -> tuple[float, float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train = torch.nonzero(~test).squeeze(1)
    best, train_loss = math.inf, math.inf
    for _ in range(_EPOCHS):
        for rows in torch.split(train[torch.randperm(len(train))], 64):
            optimizer.zero_grad()
            value = loss(model(inputs[rows]), targets[rows])
            value.backward()
            optimizer.step()
        with torch.no_grad():
            train_loss = min(train_loss, float(value.detach()))
            unseen = float(loss(model(inputs[test]), targets[test]))
        best = min(best, unseen)
        if deadline.over or unseen > 2 * best:
            break
    return best, train_loss


def _tokens(data: Examples) -> dict[str, Any]:
    """Compare bigram (input token at a position to target token) with unigram on held-out rows, both smoothed."""
    if not data.integer or data.inputs.shape[1] != data.targets.shape[1]:
        return {}
    given, wanted = data.inputs.astype(np.int64), data.targets.astype(np.int64)
    kept = wanted >= 0
    size = int(max(given.max(), wanted.max())) + 1
    train = np.broadcast_to(~data.held_out[:, None], wanted.shape) & kept
    test = np.broadcast_to(data.held_out[:, None], wanted.shape) & kept
    unigram = np.bincount(wanted[train], minlength=size) + 0.1
    unigram = unigram / unigram.sum()
    pairs, counts = np.unique(given[train] * size + wanted[train], return_counts=True)
    seen = dict(zip(pairs.tolist(), counts.tolist(), strict=True))
    totals = np.bincount(given[train], minlength=size)
    weight = 5.0  # pseudo-counts that the unigram lends to each context
    test_given, test_wanted = given[test], wanted[test]
    if not len(test_given) or np.bincount(test_given).max() > _HIDDEN * len(test_given):
        return {}  # what is asked for is hidden: a masked model, which goes by the tokens around
    found = np.array([seen.get(key, 0) for key in (test_given * size + test_wanted).tolist()], dtype=np.float64)
    bigram = (found + weight * unigram[test_wanted]) / (totals[test_given] + weight)
    prior = float(-np.log(unigram[test_wanted]).mean())
    return {"prior_loss": prior, "network_loss": float(-np.log(bigram).mean()) / max(prior, 1e-12)}
