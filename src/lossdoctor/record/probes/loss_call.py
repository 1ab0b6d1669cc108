"""The signal `loss_call`: one call of a known loss function, what enters it, and what guessing would give."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as functional
from torch import Tensor

from lossdoctor.record.probes import guess
from lossdoctor.record.probes.loss_rows import CLASSES, Floats, LossRows
from lossdoctor.record.probes.nodes import maker
from lossdoctor.record.probes.tensors import host, local, shape_of

BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss")
SIGNED = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss")  # targets are -1 and 1
REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "gaussian_nll_loss", "poisson_nll_loss")
LOGS = ("nll_loss", "kl_div")  # want log-probabilities

MOST_CLASSES = 1_000  # whose counts are kept
SUM_TOLERANCE, HALF_TOLERANCE = 1e-3, 2e-2  # rows of probabilities sum to 1 within it; bfloat16 rounds each to 0.4 %
_MEASURED = (
    "rows_sum_to_one", "rows_log_normalised", "inside_unit", "input_min", "input_max", "input_std",
    "input_finite", "target_entropy", "class_counts", "classes", "target_mean", "target_std",
    "target_min", "target_max", "ignored", "correct", "guess_loss", "zero_loss",
)  # fmt: skip


def _signatures() -> dict[str, inspect.Signature]:
    kinds = [kind for kind in dir(functional) if kind.endswith(("loss", "entropy", "logits", "distance_loss")) or kind == "kl_div"]
    return {kind: inspect.signature(getattr(functional, kind)) for kind in kinds}


_SIGNATURES = _signatures()


@np.errstate(all="ignore")  # a warning would stand among the script's own output
def describe_loss_call(kind: str, args: Sequence[Any], kwargs: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Describe one call of a loss function of `torch.nn.functional`; waits for the device where its tensors lie on one.

    64 x 10 logits: 0.25 ms; 8192 x 5000: 2 ms (1 thread, busy machine).

    Args:
        kind: name of the function.
        args, kwargs: as it was called.
        value: what it returned.

    Returns:
        The fields of `loss_call` in docs/architecture.md but `ratio` and `where`; None where one does not apply.

    Example:
        >>> import torch
        >>> call = describe_loss_call("mse_loss", (torch.zeros(2, 1), torch.tensor([1.0, 3.0])), {}, torch.tensor(5.0))
        >>> call["guess_loss"], call["broadcast"]
        (1.0, True)
    """
    bound = _bind(kind, args, kwargs)
    prediction = next((bound[name] for name in ("input", "input1", "anchor", "log_probs") if name in bound), None)
    target = bound.get("target", bound.get("targets"))
    described = {"kind": kind, "value": _number(value), **_settings(bound), **_shapes(kind, prediction, target)}
    described |= {"input_op": _operation(prediction), **dict.fromkeys(_MEASURED)}
    rows = LossRows.of(kind, prediction, target, bound)
    if rows is not None:
        described |= _input_fields(kind, rows) | _target_fields(kind, rows) | _guesses(kind, rows, bound)
        described["correct"] = _correct(kind, rows)
    return described


def _bind(kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    signature = _SIGNATURES.get(kind)
    try:
        if signature is not None:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return dict(bound.arguments)
    except TypeError:  # not how this torch's function is called
        pass
    return {**dict(zip(("input", "target"), args, strict=False)), **kwargs}


def _number(value: object) -> float:
    read = local(value)
    if read is None or not read.numel() or read.is_complex():
        return math.nan
    return float(host(read).double().mean())


def _settings(bound: Mapping[str, Any]) -> dict[str, Any]:
    reduction = bound.get("reduction", "mean")
    if bound.get("size_average") is not None or bound.get("reduce") is not None:  # the old way to say it
        average, reduced = (bound.get(name) is None or bool(bound[name]) for name in ("size_average", "reduce"))
        reduction = ("mean" if average else "sum") if reduced else "none"
    weighted = bound.get("weight") is not None or bound.get("pos_weight") is not None
    return {"reduction": reduction, "weighted": weighted, "label_smoothing": float(bound.get("label_smoothing") or 0.0)}


def _shapes(kind: str, prediction: object, target: object) -> dict[str, Any]:
    given, wanted = shape_of(prediction), shape_of(target)
    alike = kind in (*BINARY, *REGRESSION, "kl_div")
    return {"input_shape": given, "target_shape": wanted, "broadcast": bool(alike and given and wanted and given != wanted)}


def _operation(prediction: object) -> str | None:
    node = maker(prediction) if isinstance(prediction, Tensor) else None
    return str(node.name()) if node is not None else None


def _input_fields(kind: str, rows: LossRows) -> dict[str, Any]:
    inputs = rows.inputs
    if inputs is None or not inputs.size:
        return {}
    finite = inputs[np.isfinite(inputs)]
    found: dict[str, Any] = {"input_finite": len(finite) / inputs.size}
    if len(finite):
        found |= {"input_min": float(finite.min()), "input_max": float(finite.max()), "input_std": float(finite.std(dtype=np.float64))}
        found["inside_unit"] = float(((finite >= 0) & (finite <= 1)).mean())
    if kind in (*CLASSES, *LOGS) and inputs.shape[1] > 1:
        found["rows_sum_to_one"] = float(((inputs >= 0).all(1) & _is_one(inputs.sum(1), rows.half)).mean())
    if kind in LOGS and inputs.shape[1] > 1:
        found["rows_log_normalised"] = float(_is_one(np.exp(np.minimum(inputs, 1)).sum(1), rows.half).mean())
    return found


def _is_one(sums: Floats, half: bool) -> Floats:
    return np.asarray(np.abs(sums - 1) < (HALF_TOLERANCE if half else SUM_TOLERANCE))


def _target_fields(kind: str, rows: LossRows) -> dict[str, Any]:
    kept = rows.targets[rows.valid(rows.targets)]
    found: dict[str, Any] = {"classes": rows.classes, "ignored": 1 - len(kept) / len(rows.targets) if rows.classes else None}
    finite = kept[np.isfinite(kept)]
    if len(finite):
        found |= {"target_mean": float(finite.mean(dtype=np.float64)), "target_std": float(finite.std(dtype=np.float64))}
        found |= {"target_min": float(finite.min()), "target_max": float(finite.max())}
    totals = rows.class_totals() if rows.classes else _two_classes(kind, rows.targets)
    if totals is not None and totals.sum() > 0:
        found |= {"target_entropy": guess.entropy(totals), "classes": len(totals)}
        if len(totals) <= MOST_CLASSES and np.array_equal(totals, np.round(totals)):
            found["class_counts"] = totals.astype(int).tolist()
    return found


def _two_classes(kind: str, targets: Floats) -> Floats | None:
    """Return how many targets of a single output are of the lower and of the upper class; None where they are not two classes."""
    low = 0 if kind in BINARY else -1
    if kind not in (*BINARY, *SIGNED) or targets.shape[1] != 1 or not np.isin(targets, (low, 1)).all():
        return None
    return np.array([(targets == low).sum(), (targets == 1).sum()], dtype=np.float64)


def _correct(kind: str, rows: LossRows) -> float | None:
    if rows.inputs is None or rows.paired is None or not len(rows.paired):
        return None
    if rows.classes and rows.classes > 1:
        valid = rows.valid(rows.paired)
        wanted = rows.paired.argmax(1) if rows.soft else rows.paired[:, 0]
        return float((rows.inputs.argmax(1) == wanted)[valid].mean()) if valid.any() else None
    if kind in (*BINARY, "soft_margin_loss") and np.isin(rows.paired, (-1, 0, 1)).all():
        middle = 0.5 if kind == "binary_cross_entropy" else 0.0
        return float(((rows.inputs > middle) == (rows.paired > 0.5)).mean())
    return None


def _guesses(kind: str, rows: LossRows, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the best constant and what zeros would give, in the unit of the call's value."""
    found = _mean_guess(kind, rows, bound) if np.isfinite(rows.targets).all() else None
    if found is None:
        return {}
    factor = _unit(kind, rows, bound)
    best, zero = (factor * value if math.isfinite(value) else None for value in found)
    return {"guess_loss": best, "zero_loss": zero}


def _unit(kind: str, rows: LossRows, bound: Mapping[str, Any]) -> float:
    """Return the call's value over the mean for each target that counts (its class weight counted in)."""
    reduction = _settings(bound)["reduction"]
    count = rows.count // rows.targets.shape[1] if kind == "multilabel_soft_margin_loss" else rows.count
    factor = float(count) if reduction == "sum" else 1.0
    if rows.classes and (reduction != "mean" or rows.soft):  # only the mean over class numbers is divided by their weights
        weights = _vector(bound.get("weight"))
        factor *= float((rows.class_totals() * (1.0 if weights is None else weights)).sum()) / len(rows.targets)
    return factor


def _vector(weight: object) -> Floats | None:
    read = local(weight)
    return None if read is None else np.asarray(host(read).double().flatten().numpy())


def _mean_guess(kind: str, rows: LossRows, bound: Mapping[str, Any]) -> guess.Guess | None:
    if kind in ("cross_entropy", "nll_loss", "linear_cross_entropy"):
        return guess.guess_classes(rows.class_totals(), _vector(bound.get("weight")), float(bound.get("label_smoothing") or 0))
    if bound.get("weight") is not None:  # of elements or rows: what it does to a constant is not worked out
        return None
    if kind in BINARY:
        return _binary_guess(rows.targets, _vector(bound.get("pos_weight")))
    if kind == "soft_margin_loss":
        return _binary_guess((rows.targets + 1) / 2, None)
    return _regression_guess(kind, rows.targets, bound) if kind in REGRESSION else None


def _binary_guess(targets: Floats, positive_weight: Floats | None) -> guess.Guess | None:
    fits = positive_weight is None or len(positive_weight) in (1, targets.shape[1])
    if not fits or targets.min() < 0 or targets.max() > 1:
        return None
    return guess.guess_bernoulli(targets, 1.0 if positive_weight is None else positive_weight)


def _regression_guess(kind: str, targets: Floats, bound: Mapping[str, Any]) -> guess.Guess | None:
    if kind == "gaussian_nll_loss":
        return guess.guess_gaussian(targets, bool(bound.get("full")))
    if kind == "poisson_nll_loss":
        return None if bound.get("full") or not bound.get("log_input", True) else guess.guess_poisson(targets)
    losses: dict[str, Callable[[Floats], Floats]] = {
        "mse_loss": np.square,
        "l1_loss": np.abs,
        "smooth_l1_loss": guess.smooth_l1(float(bound.get("beta", 1.0))),
        "huber_loss": guess.huber(float(bound.get("delta", 1.0))),
    }
    return guess.guess_constant(targets, losses[kind])
