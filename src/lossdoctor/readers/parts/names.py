"""What a column's name says: of which split it is, what kind of figure it holds, and whether higher is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Split = Literal["train", "validation", "test", ""]
Kind = Literal[
    "loss", "metric", "lr", "grad_norm", "step", "epoch", "time", "seconds", "wait", "throughput", "loss_scale", "skipped", "rank", ""
]


def word_set(*lines: str) -> frozenset[str]:
    """Return the words of some lines as a set.

    Example:
        >>> sorted(word_set("b a", "c"))
        ['a', 'b', 'c']
    """
    return frozenset(word for line in lines for word in line.split())


_SPLITS: dict[Split, frozenset[str]] = {
    "train": word_set("train training trn tr fit"),
    "validation": word_set("val valid validation validating validate eval evaluation evaluating evaluate dev holdout heldout cv"),
    "test": word_set("test testing tst"),
}
SPLITS: dict[str, Split] = {word: split for split, held in _SPLITS.items() for word in held}
LOSSES = word_set("loss losses cost nll ce bce crossentropy objective elbo perplexity ppl bpc bpb mse l1 l2 criterion")
# Names of the quantity, not of its size: they count as a loss only where no column is called one.
ERRORS = word_set("mse mae rmse mape l1 l2 rmsle")
LOWER = word_set("error errors err wer cer ter fid mae mse rmse mape nme kl perplexity ppl eer lpips kid regret rmsle")
HIGHER = word_set(
    "acc accuracy acc1 acc5 top1 top5 prec1 prec5 f1 fscore auc auroc auprc roc map ap ar bleu chrf rouge meteor iou miou dice",
    "recall precision prec r2 psnr ssim reward rewards return score em plcc srcc corr correlation pearson spearman mcc kappa",
    "ndcg mrr hit pck hits",
    "sensitivity specificity matthews hellaswag win winrate success pq rouge1 rouge2 rougel fitness accuracies correct",
)
_RATES = word_set("lr lrs lrate")
_STEP_WORDS = word_set(
    "step steps iter iters iteration iterations it itr update updates global num train trainer current total up number batches"
)
_STEP_CORE = word_set("step steps iter iters iteration iterations it itr update updates up")
_EPOCH_WORDS = word_set("epoch epochs ep train trainer training current global")
_CLOCKS = word_set("timestamp runtime elapsed walltime wall created wct")
_WAITS = word_set("data dataload dataloader dataloading loader load loading fetch wait")
_PER_SECOND = word_set("tps wps ups fps throughput qps imgs mfu hfu tflops tgs ips")
_EMPTY = word_set("metrics metric stats log logs main value values")
_LEFT = word_set("remaining eta left")
# Averages over the epoch, the same figure again: a twin of the column without the word.
WINDOWS = word_set("step epoch batch avg average mean iter running ema smoothed smooth global median batchwise")
_GLUED = re.compile(
    r"^(train|training|valid|validation|val|test|eval|dev|tr|v|t)(loss|acc|accuracy|ppl|perplexity|err|error|mse|mae|f1|auc|nll|ce|lr)$"
)
_SHORT = {"v": "val", "t": "train"}
_WORD = re.compile(r"[a-z]+\d*|\d+", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Meaning:
    """Hold what a name says.

    Args:
        split: `train`, `validation`, `test`, or empty where the name does not say.
        kind: what kind of figure it is, empty for anything else.
        base: the words that remain without split and averaging: equal for columns that hold the same figure.
        window: the averaging word (`step`, `epoch`, ...), empty where there is none.
        higher: whether a higher value is better; None where unknown.

    Example:
        >>> meaning("val/loss_epoch").split, meaning("val/loss_epoch").kind, meaning("val/loss_epoch").window
        ('validation', 'loss', 'epoch')
    """

    split: Split
    kind: Kind
    base: tuple[str, ...]
    window: str = ""
    higher: bool | None = None


@lru_cache(maxsize=20_000)
def words(name: str) -> tuple[str, ...]:
    """Split a name into its words, in lower case.

    Example:
        >>> words("trainLoss"), words("metrics/mAP50-95(B)"), words("valloss")
        (('train', 'loss'), ('metrics', 'map', '50', '95', 'b'), ('val', 'loss'))
    """
    text = re.sub(r"mAP|MAP", "map ", name)
    text = re.sub(r"(?i)cross[ _-]?entropy", "crossentropy", text)
    found: list[str] = []
    for part in _WORD.findall(_HUMP.sub(" ", text).replace("lossD", "loss D").replace("lossG", "loss G")):
        word = part.lower()
        glued = _GLUED.match(word)
        found += [_SHORT.get(glued[1], glued[1]), glued[2]] if glued else [word]
    return tuple(found)


@lru_cache(maxsize=20_000)
def meaning(name: str) -> Meaning:
    """Say what a column's name means.

    Example:
        >>> meaning("learning_rate").kind, meaning("eval_samples_per_second").kind, meaning("metrics/recall(B)").higher
        ('lr', 'throughput', True)
    """
    parts = words(name)
    split: Split = next((SPLITS[word] for word in parts if word in SPLITS), "")
    rest = tuple(word for word in parts if word not in SPLITS and word not in _EMPTY)
    kind = _kind(name, parts, rest)
    window = next((word for word in reversed(rest) if word in WINDOWS), "") if kind in ("loss", "metric") else ""
    base = tuple(word for word in rest if word not in WINDOWS)
    return Meaning(split, kind, base, window, _higher(base) if kind == "metric" else None)


def _kind(name: str, parts: tuple[str, ...], rest: tuple[str, ...]) -> Kind:
    held = set(parts)
    if not parts or held & _LEFT:
        return ""
    for kind in (_axis(name, parts), _machine(name, held), _figure(held, rest)):
        if kind:
            return kind
    return ""


def _axis(name: str, parts: tuple[str, ...]) -> Kind:
    held = set(parts)
    if held <= _STEP_WORDS and held & _STEP_CORE and not (held & {"total"} and len(parts) > 1):
        return "step"
    if held <= _EPOCH_WORDS and held & {"epoch", "ep"}:
        return "epoch"
    if held in ({"rank"}, {"local", "rank"}, {"global", "rank"}):
        return "rank"
    return ""


def _machine(name: str, held: set[str]) -> Kind:
    lowered = name.lower()
    if held & _PER_SECOND or ("per" in held and held & {"sec", "second", "s", "gpu"}) or re.search(r"/s(ec)?\b", lowered):
        return "throughput"
    if held & _RATES or {"learning", "rate"} <= held or any(re.fullmatch(r"lr\d+|learningrate", word) for word in held):
        return "" if held & {"loss", "acc"} else "lr"
    if (
        held & {"gnorm", "gradnorm"}
        or held >= {"grad", "norm"}
        or held >= {"gradient", "norm"}
        or held == {"norm"}
        or held == {"total", "norm"}
    ):
        return "grad_norm"
    if held >= {"loss", "scale"} or held == {"scale"} or held == {"scaler"} or held == {"grad", "scale"}:
        return "loss_scale"
    if held & {"skipped", "overflow", "overflows"} or held >= {"nan", "iterations"}:
        return "skipped"
    if held & {"time", "seconds", "duration", "dt", "ms"}:
        return "wait" if held & _WAITS else _clock(held)
    if held & _CLOCKS:
        return "time"
    return ""


def _clock(held: set[str]) -> Kind:
    per = {"step", "iter", "batch", "iteration", "dt", "ms", "forward", "backward", "avg"}
    return "seconds" if held & per else "time"


def _figure(held: set[str], rest: tuple[str, ...]) -> Kind:
    if held & {"weight", "coef", "fn", "type", "num", "number", "count", "size", "lambda", "smoothing"} or held & {
        "samples",
        "params",
        "parameters",
    }:
        return ""
    lossy = any(word in LOSSES or re.fullmatch(r"loss\d*|[a-z]*loss\d*", word) for word in held)
    if lossy or (len(rest) >= 2 and rest[0] == "l" and not held & HIGHER):
        return "loss"
    if (
        held & HIGHER
        or held & LOWER
        or any(re.fullmatch(r"(acc|top|ap|ar|map|f|prec|recall|bleu|rouge|hits?)\d+\w*", word) for word in held)
    ):
        return "metric"
    return ""


def _higher(base: tuple[str, ...]) -> bool | None:
    held = set(base)
    if held & LOWER:
        return False
    return True if held else None
