"""BasicSR's and pyiqa's logs: `[epoch: 6, iter: 700, lr:(2.9e-05,)] ... l_pix: 1.0e-02`, validations as `# psnr: 27.1`."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.numbers import number

SIGN = re.compile(r"\[epoch: *\d+, iter: *[\d,]+, lr:\(|^\s*#? ?(?:\w+): -?\d+\.\d+\s+Best: ")
_HEAD = re.compile(r"\[epoch: *(\d+), iter: *([\d,]+), lr:\(([^,)]*)[^\]]*\](?:\s*\[eta:[^\]]*time \(data\): *([\d.]+) *\(([\d.]+)\)\])?")
_SCORE = re.compile(r"#? ?(\w+): (-?[\d.]+)\s+Best: ")


def parse(line: str, state: State) -> None:
    """Take a training line, or a score of a validation."""
    head = _HEAD.search(line)
    if head is None:
        if score := _SCORE.search(line):
            state.add({f"val {score[1]}": number(score[2]) or 0.0})
        return
    row = {pair.name: pair.value for pair in pairs(line[head.end() :])}
    named = zip(("epoch", "iter", "lr", "iter_time", "data_time"), head.groups(), strict=True)
    row.update({name: value for name, text in named if text and (value := number(text)) is not None})
    state.add(row)


READERS = (LineFormat("BasicSR log", SIGN, parse, begin=re.compile(r"INFO: Start training from|^Version Information"), sure=0.93).reader(),)
