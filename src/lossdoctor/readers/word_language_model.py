"""The output of PyTorch's word_language_model example: batches within an epoch, validation at its end."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.numbers import plain

SIGN = re.compile(r"^\|\s*(?:end of )?epoch +\d+ *\|.*\b(?:loss|ppl|bpc) +")
_BATCH = re.compile(r"\| *(\d+)/ *(\d+) batches")
_BITS = re.compile(r"\bbpc +(\S+)")


def parse(line: str, state: State) -> None:
    """Count the batches through the epochs."""
    figures = {pair.name.lower(): pair.value for pair in pairs(line)}
    epoch = figures.pop("epoch", figures.pop("end of epoch", None))
    row = {name: value for name, value in figures.items() if name not in ("time",)}
    if batch := _BATCH.search(line):
        row["step"] = float(batch[1])
        state.builder.setting("steps_per_epoch", float(batch[2]))
    if bits := _BITS.search(line):
        row["bpc"] = plain(bits[1]) or float("nan")
    if epoch is not None:
        row["epoch"] = epoch
    if "valid ppl" in row or "valid loss" in row or len(row) > 2:
        state.add(row)


READERS = (LineFormat("word_language_model output", SIGN, parse, begin=re.compile(r"^Namespace\("), sure=0.92).reader(),)
