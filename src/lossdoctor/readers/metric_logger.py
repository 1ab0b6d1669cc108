"""What DETR, DeiT, MAE and torchvision's references print: `Epoch: [0] [ 10/1200] loss: 8.28 (9.86)`, median and global average."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State
from lossdoctor.readers.parts.numbers import plain

SIGN = re.compile(r"^\W*(?:\S+ )?(?:(?:Epoch|Test|Val|Eval)\w*:?.*\[ *\d+/\d+\]\s+eta:|Averaged stats:)")
_HEAD = re.compile(r"(?:Epoch: \[(?P<epoch>\d+)\])?.*?\[ *(?P<step>\d+)/(?P<of>\d+)\]\s+eta")
_FIGURE = re.compile(r"([\w./@]+): +(-?[\d.]+(?:e[-+]?\d+)?|nan|inf)(?: \((-?[\d.]+(?:e[-+]?\d+)?|nan|inf)\))?", re.IGNORECASE)
_MACHINE = {"time": "iter_time", "data": "data_time"}
_DROPPED = ("max", "mem", "eta")


def parse(line: str, state: State) -> None:
    """Take the median of a training line; of an epoch's and a test's end the global average. Test lines on the way are left out."""
    summary = "Averaged stats:" in line
    head = None if summary else _HEAD.search(line)
    if head is not None:
        testing = head["epoch"] is None
        state.split = "test" if testing else "train"
        if testing:
            return
        state.epoch = float(head["epoch"])
    row: dict[str, float] = {}
    for name, value, average in _FIGURE.findall(line):
        figure = plain(average if summary and average else value)
        if figure is None or name in _DROPPED or (name[-1:].isdigit() and name.startswith("loss")) or name.endswith("_unscaled"):
            continue
        row[_MACHINE.get(name, name)] = figure
    if summary:
        _summary(row, state)
    elif head is not None:
        row.update(epoch=float(head["epoch"]), step=float(head["step"]))
        state.builder.setting("steps_per_epoch", float(head["of"]))
        state.add(row)


def _summary(row: dict[str, float], state: State) -> None:
    """Name the averages by the split of the lines before; those of training repeat what the lines said."""
    if state.split == "test":
        state.add({**{f"test {name}": value for name, value in row.items()}, **({"epoch": state.epoch} if state.epoch is not None else {})})
    state.split = ""


READERS = (LineFormat("MetricLogger output", SIGN, parse, sure=0.93).reader(),)
