"""fairseq's output: `train_inner` lines with `=`, epoch and validation lines with bars; also lines of JSON."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, mark, pairs
from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.records import flat
from lossdoctor.readers.parts.records import parse as parse_json

SIGN = re.compile(r"\|\s*(?:INFO \| )?(?:train_inner|train|valid|test)\b.*\||\bepoch \d+\b.*\bnum_updates\b|\bnum_updates\b")
_SPLIT = re.compile(r"\|\s*(train_inner|train|valid|test)\b")
_EPOCH = re.compile(r"\bepoch (\d+)")
_JSON = re.compile(r"\{.*\}")
_SCALE = re.compile(r"loss scale to:? ([\d.e+-]+)")
_KEPT = re.compile(r"^(best_|train_wall|bsz|clip|wall|gb_free|train_|num_updates|sample)")


def parse(line: str, state: State) -> None:
    """Count by `num_updates`; the epoch lines of training repeat what the inner lines said."""
    split = _SPLIT.search(line)
    name = split[1] if split else "train_inner"
    if scale := _SCALE.search(line):
        state.add({"loss_scale": number(scale[1]) or 0.0, "overflow": 1.0})
        return
    found = _figures(line)
    epoch = _EPOCH.search(line)
    row = {key: value for key, value in found.items() if not _KEPT.match(key)}
    if "num_updates" in found:
        row["num_updates"] = found["num_updates"]
    if epoch:
        row["epoch"] = float(epoch[1])
    prefix = {"valid": "valid ", "test": "test ", "train": "epoch mean train "}.get(name, "")
    if not any("loss" in key or "ppl" in key for key in row):
        mark(line, state)
        return
    state.add(
        {
            key if key in ("num_updates", "epoch", "lr", "gnorm", "wps", "ups", "loss_scale") else prefix + key: value
            for key, value in row.items()
        }
    )


def _figures(line: str) -> dict[str, float]:
    held = _JSON.search(line)
    value = parse_json(held[0]) if held else None
    if isinstance(value, dict):
        return {name.removeprefix("train_").removeprefix("valid_"): figure for name, figure in flat(value).items()}
    return {pair.name.split()[-1]: pair.value for pair in pairs(line)}


READERS = (LineFormat("fairseq output", re.compile(SIGN.pattern + r"|setting loss scale to"), parse, sure=0.91).reader(),)
