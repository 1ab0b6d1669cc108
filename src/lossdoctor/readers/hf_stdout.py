"""What Hugging Face's Trainer prints: a Python dict per log, between progress bars; version 5 puts the numbers in quotes."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State
from lossdoctor.readers.parts.numbers import number

_DICT = re.compile(r"\{\s*'[\w./ -]+'\s*:[^{}]*\}")
_ITEM = re.compile(r"'([\w./ -]+)'\s*:\s*'?([^,'}]+)")
SIGN = re.compile(r"\{\s*'[\w./-]*(?:loss|grad_norm|learning_rate|eval_\w+|reward)'\s*:")


def parse(line: str, state: State) -> None:
    """Take each dict of a line; the summary at the end is none."""
    for match in _DICT.finditer(line):
        row = {name: value for name, text in _ITEM.findall(match[0]) if (value := number(text.strip())) is not None}
        if row and "train_runtime" not in row:
            row.pop("total_flos", None)
            state.add(row)


READERS = (LineFormat("HF Trainer output", SIGN, parse, begin=re.compile(r"\*{3,} ?Running training"), sure=0.92).reader(),)
