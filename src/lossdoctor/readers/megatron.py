"""Megatron-LM's and DeepSpeed's output: figures between bars, overflow messages of the loss scaler, one prefix per rank."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, finish_row, pairs, place
from lossdoctor.readers.parts.numbers import number

SIGN = re.compile(r"\biteration +\d+ */ *\d+ \||validation loss at|\bstep=\d+, skipped=\d+|OVERFLOW! Rank \d+ Skipping step")
_PREFIX = re.compile(r"^\s*\[(?:default|rank)?\d+\]: ?")
_OVERFLOW = re.compile(r"OVERFLOW! Rank (\d+).*?reducing to ([\d.e+]+)")
_AT = re.compile(r"validation loss at (?:iteration|the end of training)[^|]*?(\d+)?[^|]*\|", re.IGNORECASE)
_DROPPED = re.compile(r"consumed|batch size|nan iterations|TFLOP|params norm|num zeros|mom", re.IGNORECASE)


def parse(line: str, state: State) -> None:
    """Take a training line, a validation line, or a message that the loss scale was halved."""
    line = _PREFIX.sub("", line)
    if overflow := _OVERFLOW.search(line):
        if overflow[1] == "0":
            state.add({"loss_scale": number(overflow[2]) or 0.0, "overflow": 1.0})
        return
    at = _AT.search(line)
    row: dict[str, float] = {}
    for pair in pairs(line[at.end() :] if at else line):
        if _DROPPED.search(pair.name):
            continue
        name = "iter ms" if "elapsed time per iteration" in pair.name else pair.name
        place(row, f"valid {name}" if at else name, pair, state)
    if at and at[1]:
        row["step"] = float(at[1])
    finish_row(row, state)


READERS = (LineFormat("Megatron or DeepSpeed output", SIGN, parse, sure=0.93).reader(),)
