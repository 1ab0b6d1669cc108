"""Captured progress bars (tqdm, and Keras's own): the figures behind the bar; a bar that was drawn again counts once."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs
from lossdoctor.readers.parts.names import SPLITS, meaning

BAR = re.compile(
    r"(?P<head>[^|]*?)(?P<percent>\d{1,3})%\|[^|]*\| *(?P<at>\d+)/(?P<of>\d+) +"
    r"\[[^\]]*?(?:it|s|batch\w*|ex\w*|img\w*)(?:/\w+)?(?P<tail>[^\]]*)\](?P<rest>.*)"
)
_EPOCH = re.compile(r"epoch\W*(\d+)", re.IGNORECASE)
KERAS = re.compile(r"(?P<at>\d+)/(?P<of>\d+) [\[━=\-][\]\[━─=>. \-╸╺]* ?-? *(?:ETA: )?(?P<tail>.*(?:loss|acc)\w*: .*)")
_KERAS_EPOCH = re.compile(r"^Epoch (\d+)/(\d+)")
_SIGN = re.compile(r"\d{1,3}%\|[^|]*\| *\d+/\d+ +\[.*?(?:[\w.@ ]*[=:] *-?[\d.]+(?:e-?\d+)?|nan)")


def parse(line: str, state: State) -> None:
    """Take the figures behind a bar; the place in the bar is the step within the epoch."""
    match = BAR.search(line)
    if match is None:
        return
    row = {pair.name: pair.value for pair in pairs(match["tail"] + " " + match["rest"])}
    head = match["head"]
    split = next((SPLITS[word] for word in re.findall(r"[a-z]+", head.lower()) if word in SPLITS), "")
    if split == "validation" or split == "test":
        row = {name if meaning(name).split else f"{split} {name}": value for name, value in row.items()}
    if not any(meaning(name).kind in ("loss", "metric") for name in row):
        return
    if epoch := _EPOCH.search(head):
        state.epoch = float(epoch[1])
    at = float(match["at"])
    if split in ("", "train"):
        row["step"] = at
    if state.epoch is not None:
        row["epoch"] = state.epoch
    if not _again(row, state):
        state.add(row)


def _again(row: dict[str, float], state: State) -> bool:
    """Tell whether the bar was only drawn again."""
    key = hash(tuple(sorted((name, value) for name, value in row.items() if value == value)))
    same = key == state.last
    state.last = key
    return same


def keras(line: str, state: State) -> None:
    """Take the last state of each epoch: the figures are running means over it."""
    if epoch := _KERAS_EPOCH.match(line):
        state.epoch = float(epoch[1])
        state.builder.setting("planned_epochs", float(epoch[2]))
        return
    match = KERAS.search(line)
    if match is None or match["at"] != match["of"]:
        return
    row = {pair.name: pair.value for pair in pairs(match["tail"])}
    if state.epoch is None or not row:
        return
    row["epoch"] = state.epoch
    if not _again(row, state):
        state.add(row)


READERS = (
    LineFormat("progress bars", _SIGN, parse, sure=0.6).reader(),
    LineFormat("Keras output", re.compile(r"^Epoch \d+/\d+\s*$|" + KERAS.pattern), keras, sure=0.55).reader(),
)
