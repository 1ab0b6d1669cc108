"""Read what a program prints: find the figures in a line, and keep in mind which step, epoch and split it speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lossdoctor.readers.parts.names import SPLITS, meaning, word_set, words
from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, MarkKind, Table

_NUMBER = r"[-+]?(?:\d+(?:,\d{3})+(?:\.\d+)?|\d+,\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_WORD = r"(?:[^\W\d_]|_)[\w./@+\-]{0,60}(?:\[\w*\]|\(\w{1,4}\))?"
PAIR = re.compile(
    rf"""(?<![\w.])(?P<name>{_WORD}(?:[ \t]{{1,2}}{_WORD}){{0,3}})['"]?
         (?P<gap>[ \t]*[:=][ \t]*|[ \t]*\[[ \t]*|[ \t]+)
         ['"]?[(\[]?[ \t]*
         (?P<value>{_NUMBER})
         (?:[ \t]*/[ \t]*(?P<of>\d[\d,]*)(?:[ \t]*=[ \t]*(?P<share>\d*\.?\d+))?)?
         (?P<unit>%|[A-Za-z]{{1,4}}(?:/\w+)?(?![\w.]))?(?![\w])""",
    re.VERBOSE | re.IGNORECASE,
)
# What stands before the message: dates, clocks, levels, hosts; and clocks anywhere (a remaining time is no figure).
_STAMP = re.compile(
    r"\[?\(?\b\d{2,4}[-./]\d{1,2}[-./]\d{2,4}\)?(?:[ T|,]+\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?\]?"
    r"|\b(?:\d+ days?, )?\d{1,4}:\d{2}(?::\d{2})?(?:[.,]\d+)?\b|\b\d+h:?\d+m(?:in)?:?\d+s\b|\b(?:INFO|DEBUG|WARNING|ERROR|TRACE)\b[: ]?",
)
_RANK = re.compile(r"^\W{0,2}\[?(?:default|rank[ :=]?|rank_|gpu[ :=]?|worker[ :=]?)(\d{1,4})\]?[:\]) ]", re.IGNORECASE)
_ERROR = re.compile(r"^\s*(?:\[[^\]]*\]:?\s*)?(?:Traceback \(most recent call last\)|\w*(?:Error|Exception|Interrupt)(?:: |$))")
_CLASSES = re.compile(
    r"\b(?:num_class(?:es)?|n_class(?:es)?|nclass(?:es)?|num_labels|vocab_size|n_vocab|vocab size)\b\W{1,4}(\d{1,7})\b", re.IGNORECASE
)
_BEGIN = re.compile(
    r"\b(?:start(?:ing|ed)?|begin(?:ning)?|launch(?:ing)?) (?:the |a |new )*train|\*{3,} ?Running training"
    r"|(?:^|[\]>:|\-]\s*)(?:Parameters:|Namespace\(|Arguments:|Hyper-?parameters:)",
    re.IGNORECASE,
)
_NAMESPACE = re.compile(r"\bNamespace\(\w+=")
_ARGUMENT = re.compile(r"(\w+)=('[^']*'|[^,()\[\]]+)(?=[,)])")
_RESUME = re.compile(
    r"\b(?:resum(?:e|ing|ed)\b.{0,40}(?:from|checkpoint|training)|(?:load(?:ing|ed)|restor(?:ing|ed)) .{0,40}checkpoint)", re.IGNORECASE
)
_DASHES = re.compile(r"[=\-_*#~]{4,}|\|+|[─━█▏▎▍▌▋▊▉░▒▓#]+")
# Figures that may follow their name without a colon.
_BARE = word_set(
    "loss nll ppl perplexity acc accuracy lr epoch ep iter iteration step steps bleu f1 auc map miou iou norm gnorm reward score wer",
    "cer rate acc1 acc5 acc@1 acc@5 top1 top5 error err batch update updates num_updates bpc mse mae rmse cost ms/batch psnr ssim time s",
)
LONGEST = 8192


@dataclass
class Pair:
    """Hold a figure of a line: its name, its value, and the total that stands behind a slash."""

    name: str
    value: float
    of: float | None = None


def pairs(text: str) -> list[Pair]:
    """Find the named figures of a line.

    Example:
        >>> [(pair.name, pair.value) for pair in pairs("Epoch [3/20], Train Loss: 2.04, Val Acc: 16.4%")]
        [('Epoch', 3.0), ('Train Loss', 2.04), ('Val Acc', 16.4)]
    """
    cleaned = _DASHES.sub(" ; ", _STAMP.sub(" ; ", text[:LONGEST]))
    return [pair for match in PAIR.finditer(cleaned) if (pair := _pair(match)) is not None]


def _pair(match: re.Match[str]) -> Pair | None:
    name = match["name"].strip(" .-")
    bare = not match["gap"].strip()
    if bare:
        last = name.split()[-1].lower()
        if last not in _BARE and words(last)[-1:] and words(last)[-1] not in _BARE:
            return None
        name = _bare_name(name)
    share = match["share"]
    value = number(share) if share else number(match["value"])
    if value is None or ".py" in name:
        return None
    of = number(match["of"]) if match["of"] and not share else None
    if of and meaning(name).kind == "metric":
        return Pair(name, value / of)
    return Pair(name, value, of)


def _bare_name(name: str) -> str:
    """Keep the words that belong to the figure: `step train loss` is `train loss`."""
    parts = name.split()
    kept = [parts[-1]]
    for part in reversed(parts[:-1]):
        if part.lower() not in SPLITS and part.lower() not in (
            "learning",
            "grad",
            "gradient",
            "total",
            "batch",
            "mean",
            "avg",
            "average",
            "lm",
            "global",
        ):
            break
        kept.insert(0, part)
    return " ".join(kept)


@dataclass
class State:
    """Hold what the lines read so far say of the next one.

    Args:
        builder: takes the rows.
        step, epoch: the last ones said.
        split: `train`, `validation` or `test`, as a heading said.
        rank: of the process that printed the line, where lines name it.
    """

    builder: Builder
    step: float | None = None
    epoch: float | None = None
    split: str = ""
    rank: float | None = None
    last: int = 0

    def add(self, values: Mapping[str, float]) -> None:
        """Append a row, with step, epoch and rank where the line does not say them itself."""
        row = dict(values)
        if self.rank is not None:
            row["rank"] = self.rank
        self.builder.add(row)

    def mark(self, kind: MarkKind, text: str) -> None:
        """Note a beginning, a resumption or an error."""
        self.builder.mark(kind, text)


Parse = Callable[[str, State], None]


@dataclass(frozen=True)
class LineFormat:
    """Describe a format of printed lines.

    Args:
        format: its name.
        sign: a line that matches holds figures of this format; it also decides whether a log is of the format.
        parse: takes a line that matches; the general rule of this module where left out.
        names: what the format's own names mean, as a name that `names.py` understands; an empty text drops the figure.
        begin: a line that says that a run begins.
        sure: how sure a log is of this format when a line matches.
    """

    format: str
    sign: re.Pattern[str]
    parse: Parse | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    begin: re.Pattern[str] = _BEGIN
    sure: float = 0.9
    finish: Callable[[Table], Table] | None = None

    def reader(self) -> Reader:
        """Make the reader of this format."""
        return Reader(self.format, self._knows, lambda source: [self.table(source.lines())])

    def _knows(self, source: Source) -> float:
        if not source.is_text:
            return 0.0
        hits = sum(bool(self.sign.search(line)) for line in source.telling_lines)
        # More matching lines make a format surer than another that matches a few of them.
        return self.sure + min(hits, 1000) * 5e-5 if hits else 0.0

    def table(self, lines: Iterable[str]) -> Table:
        """Read lines into a table."""
        state = State(Builder(self.format))
        parse = self.parse or self.general
        for line in lines:
            rank = _RANK.match(line)
            state.rank = float(rank[1]) if rank else None
            text = line[:LONGEST]
            if self.sign.search(text):
                parse(text, state)
            else:
                mark(text, state, self.begin)
        table = state.builder.table()
        return self.finish(table) if self.finish else table

    def general(self, line: str, state: State) -> None:
        """Take every figure of a line."""
        row: dict[str, float] = {}
        for pair in pairs(line):
            name = self.names.get(pair.name, self.names.get(pair.name.lower(), pair.name))
            if not name:
                continue
            place(row, name, pair, state)
        finish_row(row, state)


def mark(line: str, state: State, begin: re.Pattern[str] = _BEGIN) -> None:
    """Note a traceback, a beginning or a resumption."""
    if classes := _CLASSES.search(line):
        state.builder.setting("classes", number(classes[1]))
    if _NAMESPACE.search(line):
        state.builder.fact("settings", {name: _setting(text) for name, text in _ARGUMENT.findall(line)})
    if _ERROR.match(line):
        state.mark("error", line.strip())
    elif begin.search(line):
        state.mark("start", line.strip())
        state.split = ""
    elif _RESUME.search(line):
        state.mark("resume", line.strip())


def _setting(text: str) -> float | str:
    value = number(text)
    return text.strip("'") if value is None else value


def place(row: dict[str, float], name: str, pair: Pair, state: State) -> None:
    """Put a figure into the row; steps and epochs also into the state, their totals into the facts."""
    kind = meaning(name).kind
    if kind in ("step", "epoch") or name.lower() in ("batch", "batches"):
        key = "epoch" if kind == "epoch" else "step"
        row.setdefault(key, pair.value)
        if pair.of:
            state.builder.setting(f"planned_{key}s", pair.of)
        return
    if kind in ("loss", "metric") and state.split and not meaning(name).split:
        name = f"{state.split} {name}"
    row.setdefault(name, pair.value)


def finish_row(row: dict[str, float], state: State) -> bool:
    """Append a row that holds a figure, and tell so; one that only counts moves the state on."""
    state.epoch = row.get("epoch", state.epoch)
    state.step = row.get("step", state.step)
    if any(meaning(name).kind not in ("step", "epoch", "") for name in row):
        if state.epoch is not None:
            row.setdefault("epoch", state.epoch)
        state.add(row)
        return True
    return False
