"""ESPnet 2's `train.log`: one line per epoch with `[train]` and `[valid]` results, lines within the epoch with figures alone."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.numbers import number

SIGN = re.compile(r"\d+epoch(?: results: |:train:\d+)")
_EPOCH = re.compile(r"(\d+)epoch")
_PART = re.compile(r"\[(train|valid|test|att_plot)\]([^\[]*)")
_BATCHES = re.compile(r"\d+epoch:train:(\d+)-(\d+)batch:(.*)")
_DROPPED = re.compile(r"(^|_)(count|mem|time|cached)|^time")


def parse(line: str, state: State) -> None:
    """Take a line within an epoch as a training row; of an epoch's end the validation, and the training where nothing came before."""
    epoch = number(_EPOCH.search(line)[1]) if _EPOCH.search(line) else None  # type: ignore[index]
    state.epoch = epoch if epoch is not None else state.epoch
    if inner := _BATCHES.search(line):
        row = _row(inner[3], "")
        row.update(step=float(inner[2]), epoch=state.epoch or 0.0)
        state.add(row)
        state.step = float(inner[2])
        return
    row = {}
    for name, text in _PART.findall(line):
        if name in ("train", "valid") and not (name == "train" and state.step is not None):
            row.update(_row(text, f"{name} "))
    if row:
        state.add({**row, "epoch": state.epoch or 0.0})


def _row(text: str, prefix: str) -> dict[str, float]:
    found = {pair.name.split()[-1]: pair.value for pair in pairs(text)}
    kept = {name: value for name, value in found.items() if not _DROPPED.search(name)}
    # ESPnet calls the wait for a batch iter_time
    wait = {"data_time": found["iter_time"]} if "iter_time" in found and prefix != "valid " else {}
    return {name if name.startswith("optim") else prefix + name: value for name, value in kept.items()} | wait


READERS = (LineFormat("ESPnet log", SIGN, parse, sure=0.93).reader(),)
