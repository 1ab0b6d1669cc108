"""Decide which column plays which role; a user's word (`--map`) goes before the format's, and that before the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lossdoctor.core.errors import UsageError
from lossdoctor.readers.parts.names import Meaning, meaning
from lossdoctor.readers.parts.table import Table

ROLES = (
    *("loss", "validation_loss", "metric", "validation_metric", "lr", "grad_norm", "step", "epoch", "time", "seconds", "wait"),
    *("throughput", "loss_scale", "skipped", "rank", "ignore"),
)
_ALIASES = {
    "val_loss": "validation_loss",
    "train_loss": "loss",
    "val_metric": "validation_metric",
    "learning_rate": "lr",
    "accuracy": "metric",
}
# How well the words of a loss column say that it is the whole loss; anything else is a term of it.
_WHOLE = {("loss",): 100, ("total", "loss"): 98, ("loss", "total"): 98, ("overall", "loss"): 97, ("lm", "loss"): 95, ("losses",): 90}
_FALLBACK = {
    ("nll", "loss"): 70,
    ("nll",): 68,
    ("crossentropy",): 66,
    ("crossentropy", "loss"): 66,
    ("ce",): 64,
    ("ce", "loss"): 64,
    ("cost",): 64,
}
_SMALLEST_WHOLE = 60
# Losses further apart than this are of another scale: a sum over rows or words against a mean (starting value).
OTHER_SCALE = 20.0
_PERPLEXITY = frozenset({"ppl", "perplexity"})


@dataclass
class Roles:
    """Hold the columns that were chosen.

    Args:
        chosen: role to the columns that play it; a loss of several columns is their sum.
        of_column: column to role, for the report; columns without a role are left out.
        notes: what the choice rests on where it is not plain.

    Example:
        >>> decide(Table.of({"loss": [2.0, 1.0], "val_loss": [2.0, 1.5]})).chosen["validation_loss"]
        ('val_loss',)
    """

    chosen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    of_column: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def one(self, role: str) -> str | None:
        """Return the first column of a role, or None."""
        return next(iter(self.chosen.get(role, ())), None)


def parse_map(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read `role=column` pairs into column to role.

    Raises:
        UsageError: where a pair has no `=`, or there is no such role.

    Example:
        >>> parse_map(("loss=my_cost", "val_loss=dev_cost"))
        {'my_cost': 'loss', 'dev_cost': 'validation_loss'}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        role = _ALIASES.get(role.strip(), role.strip())
        if not equals or not column.strip():
            raise UsageError(f"--map takes ROLE=COLUMN, not {pair!r}")
        if role not in ROLES:
            raise UsageError(f"--map knows no role {role!r}; the roles are {', '.join(ROLES)}")
        found[column.strip()] = role
    return found


def decide(table: Table, mapped: Mapping[str, str] | None = None) -> Roles:
    """Choose the columns of each role.

    Args:
        table: the log.
        mapped: column to role, as the user said; columns that the log does not have are an error.

    Raises:
        UsageError: where a mapped column is not there; names the nearest.
    """
    roles = Roles()
    mapped = dict(mapped or {})
    _check(table, mapped)
    fixed = {**table.roles, **mapped}
    for column, role in fixed.items():
        if column in table.columns and role != "ignore":
            _give(roles, role, (*roles.chosen.get(role, ()), column))
    free = {name: meaning(name) for name, column in table.columns.items() if name not in fixed and len(column)}
    _losses(table, roles, free)
    _metrics(table, roles, free)
    for kind in ("step", "epoch", "lr", "grad_norm", "time", "seconds", "wait", "throughput", "loss_scale", "skipped", "rank"):
        _single(table, roles, free, kind)
    return roles


def _check(table: Table, mapped: Mapping[str, str]) -> None:
    import difflib

    for column in mapped:
        if column not in table.columns:
            near = difflib.get_close_matches(column, list(table.columns), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(list(table.columns)[:12])}"
            raise UsageError(f"the log has no column {column!r}{hint}")


def _give(roles: Roles, role: str, columns: tuple[str, ...]) -> None:
    if columns:
        roles.chosen[role] = columns
        roles.of_column.update(dict.fromkeys(columns, role))


def _count(table: Table, name: str) -> int:
    return len(table.columns[name])


def _losses(table: Table, roles: Roles, free: dict[str, Meaning]) -> None:
    losses = {name: found for name, found in free.items() if found.kind == "loss"}
    training = {name: found for name, found in losses.items() if found.split in ("train", "")}
    held_out = _held_out(losses)
    if "loss" not in roles.chosen:
        _give(roles, "loss", _whole(table, training, roles))
    if "validation_loss" not in roles.chosen:
        _give(roles, "validation_loss", _partner(table, roles, held_out))
    evaluated = tuple(name for name, found in training.items() if found.base[:1] == ("evaluated",) and name not in roles.of_column)
    _give(roles, "evaluated_loss", evaluated[:1])


def _held_out(losses: dict[str, Meaning]) -> dict[str, Meaning]:
    """Take the validation columns, or the test columns where a log has no others."""
    validation = {name: found for name, found in losses.items() if found.split == "validation"}
    return validation or {name: found for name, found in losses.items() if found.split == "test"}


def _whole(table: Table, losses: dict[str, Meaning], roles: Roles) -> tuple[str, ...]:
    """Choose the column that is the whole loss, else the terms that add up to it."""
    if not losses:
        return ()
    most = max(_count(table, name) for name in losses)
    scored = {name: _score(found) for name, found in losses.items() if _count(table, name) * 10 >= most or most < 10}
    best = max(scored, key=lambda name: (scored[name], _count(table, name)))
    if scored[best] >= _SMALLEST_WHOLE:
        return (best,)
    terms = _terms(table, {name: losses[name] for name in scored})
    total = _sum_among(table, terms)
    if total is not None:
        return (total,)
    if len(terms) > 1:
        roles.notes.append(f"the log has no whole loss; the sum of {', '.join(terms)} is taken for it (change it with --map loss=COLUMN)")
    return terms


def _score(found: Meaning) -> int:
    score = _WHOLE.get(found.base) or _FALLBACK.get(found.base) or 0
    if not score and set(found.base) & _PERPLEXITY:
        score = 61
    if not score and len(found.base) == 2 and found.base[-1] in ("loss", "1") and found.base[0] in ("main", "model", "task", "criterion"):
        score = 62
    # The value of the step before the mean over an epoch, which lags and hides spikes.
    return score + (1 if found.window in ("step", "batch") else 0) - (5 if found.window == "epoch" else 0)


def _terms(table: Table, losses: dict[str, Meaning]) -> tuple[str, ...]:
    """Keep one column per term: those with most values, steps before epochs."""
    by_base: dict[tuple[str, ...], str] = {}
    for name, found in losses.items():
        held = by_base.get(found.base)
        if held is None or _score(found) > _score(losses[held]):
            by_base[found.base] = name
    names = list(by_base.values())
    most = max(_count(table, name) for name in names)
    return tuple(name for name in names if _count(table, name) == most)[:16]


def _sum_among(table: Table, terms: tuple[str, ...]) -> str | None:
    """Find the term that is the sum of all the others."""
    if len(terms) < 3:
        return None
    values = np.stack([table.columns[name].values[:200] for name in terms])
    with np.errstate(all="ignore"):
        for index, name in enumerate(terms):
            rest = values.sum(axis=0) - values[index]
            # 1e-3: printed figures are rounded
            if (
                np.nanmax(np.abs(rest - values[index]) / np.maximum(np.abs(values[index]), 1e-9), initial=0) < 1e-3
                and np.isfinite(rest).any()
            ):
                return name
    return None


def _partner(table: Table, roles: Roles, held_out: dict[str, Meaning]) -> tuple[str, ...]:
    """Choose the held-out column that holds the same figure as the training loss."""
    if not held_out:
        return ()
    training = [meaning(name) for name in roles.chosen.get("loss", ())]
    if len(training) > 1:
        same = tuple(name for name, found in held_out.items() if any(found.base == one.base for one in training))
        if len(same) == len(training):
            return same
    wanted = training[0].base if len(training) == 1 else ("loss",)
    alike = [name for name, found in held_out.items() if found.base == wanted]
    perplexity = [name for name, found in held_out.items() if set(found.base) & _PERPLEXITY]
    if perplexity and (not alike or not _comparable(table, roles, alike)):
        return (max(perplexity, key=lambda name: _count(table, name)),)
    if not alike:
        return _whole(table, held_out, roles)
    return (max(alike, key=lambda name: (_count(table, name), _score(held_out[name]))),)


def _comparable(table: Table, roles: Roles, names: list[str]) -> bool:
    """Tell whether held-out columns are on the scale of the training loss, and not sums over rows or words."""
    own = [_middle(table, name) for name in roles.chosen.get("loss", ())]
    ratios = [abs(_middle(table, name) / sum(own)) for name in names if own and sum(own)]
    return not ratios or any(1 / OTHER_SCALE < ratio < OTHER_SCALE for ratio in ratios)


def _middle(table: Table, name: str) -> float:
    values = table.columns[name].values
    return float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0


def _metrics(table: Table, roles: Roles, free: dict[str, Meaning]) -> None:
    metrics = {name: found for name, found in free.items() if found.kind == "metric"}
    held_out = _split(table, roles, metrics)
    training = {name: found for name, found in metrics.items() if found.split in ("train", "") and name not in held_out}
    chosen = roles.chosen.get("validation_metric") or _best_metric(table, held_out)
    _give(roles, "validation_metric", chosen)
    if "metric" not in roles.chosen:
        base = meaning(chosen[0]).base if chosen else ()
        same = {name: found for name, found in training.items() if found.base == base}
        _give(roles, "metric", _best_metric(table, same or training))


def _split(table: Table, roles: Roles, metrics: dict[str, Meaning]) -> dict[str, Meaning]:
    """Take the scores of held-out data: those named so, else those told far more seldom than the loss."""
    for split in ("validation", "test"):
        named = {name: found for name, found in metrics.items() if found.split == split}
        if named:
            return named
    unnamed = {name: found for name, found in metrics.items() if not found.split}
    if "validation_loss" in roles.chosen and any(name.startswith("metrics/") for name in unnamed):
        return {name: found for name, found in unnamed.items() if name.startswith("metrics/")}
    most = max((_count(table, name) for name in roles.chosen.get("loss", ())), default=0)
    return {name: found for name, found in unnamed.items() if 2 * _count(table, name) <= most and most > 3}


# Scores that people steer by, best first; the rest in the order of how often they are told.
_PREFERRED = ("acc", "accuracy", "acc1", "top1", "prec1", "map", "ap", "bleu", "miou", "f1", "reward", "wer", "cer", "auc")


def _best_metric(table: Table, metrics: dict[str, Meaning]) -> tuple[str, ...]:
    """Prefer an accuracy, then the usual scores, then whatever is told most often; of equals the shortest name."""
    if not metrics:
        return ()

    def rank(name: str) -> tuple[int, int, int]:
        held = set(metrics[name].base)
        preference = next((len(_PREFERRED) - i for i, word in enumerate(_PREFERRED) if word in held), 0)
        return (preference, _count(table, name), -len(metrics[name].base))

    return (max(metrics, key=rank),)


def _single(table: Table, roles: Roles, free: dict[str, Meaning], kind: str) -> None:
    if kind in roles.chosen:
        return
    alike = [name for name, found in free.items() if found.kind == kind and found.split in ("train", "")]
    if alike:
        _give(roles, kind, (max(alike, key=lambda name: (_count(table, name), kind != "lr" or _moves(table, name), -len(name))),))


def _moves(table: Table, name: str) -> bool:
    values = table.columns[name].values
    return bool(len(values)) and bool(np.nanmax(values) > 0) if np.isfinite(values).any() else False
