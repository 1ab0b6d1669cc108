"""nanoGPT and its kin: nanoGPT, build-nanogpt, llm.c's `main.log` and modded-nanogpt."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.numbers import plain

_NANO = re.compile(r"^(?:iter|step) +\d+: (?:train )?loss|^iter \d+: loss")
_BUILD = re.compile(r"^step +\d+ \| (?:loss|train loss)|^validation loss: |^HellaSwag accuracy: ")
_MODDED = re.compile(r"^step:\d+/\d+ (?:train_loss|val_loss|train_time)")
_LLMC = re.compile(r"^s:\d+ (?:trl|tel|eval):")
_LLMC_FIGURE = re.compile(r"(\w+):(\S+)")
_LLMC_NAMES = {"s": "step", "trl": "train loss", "tel": "val loss", "eval": "val hellaswag accuracy", "lr": "lr", "norm": "grad norm"}


def nano(line: str, state: State) -> None:
    """Take a line; where training and validation are estimated together, the training loss is an evaluation's too."""
    figures = {pair.name.lower(): pair.value for pair in pairs(line)}
    row = {"step" if name in ("iter", "step") else name: value for name, value in figures.items()}
    if "val loss" in row and "train loss" in row:
        row["evaluated train loss"] = row.pop("train loss")
    if "time" in row:
        row["iter ms"] = row.pop("time")
    row.pop("mfu", None)
    state.add(row)


def build(line: str, state: State) -> None:
    """Take a line; those of validations carry no step."""
    figures = {pair.name: pair.value for pair in pairs(line)}
    if line.startswith("HellaSwag"):
        figures = dict.fromkeys(("val hellaswag accuracy",), next(iter(figures.values()), float("nan")))
    state.add(figures)


def modded(line: str, state: State) -> None:
    """Take a line; times are sums over the run."""
    row: dict[str, float] = {}
    for pair in pairs(line):
        if pair.name == "step":
            state.builder.setting("planned_steps", pair.of)
        row[pair.name] = pair.value
    row.pop("step_avg", None)
    if len(row) > 1:
        state.add(row)


def llmc(line: str, state: State) -> None:
    """Take a line of `name:value` figures."""
    found = [(_LLMC_NAMES.get(name, name), plain(text)) for name, text in _LLMC_FIGURE.findall(line)]
    state.add({name: value for name, value in found if value is not None})


READERS = (
    LineFormat("nanoGPT output", _NANO, nano, sure=0.93).reader(),
    LineFormat("build-nanogpt output", _BUILD, build, sure=0.93).reader(),
    LineFormat("modded-nanogpt log", _MODDED, modded, sure=0.94).reader(),
    LineFormat("llm.c log", _LLMC, llmc, sure=0.94).reader(),
)
