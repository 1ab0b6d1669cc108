"""JoeyNMT's `train.log` and `validations.txt`: batch losses per token; the validation loss is a sum, so its perplexity counts."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat, State, pairs

SIGN = re.compile(r"Batch Loss: .*Tokens per Sec|^Steps?: +\d+\s+Loss:|Validation result .*at epoch|Evaluation result.*ppl")
_VALIDATION = re.compile(r"Validation result|Evaluation result|^Steps?:", re.IGNORECASE)
_NAMES = {"Tokens per Sec": "tokens per sec", "Steps": "step", "Lr": "lr", "LR": "lr"}


def parse(line: str, state: State) -> None:
    """Take a training line as it is; of a validation the perplexity and the scores."""
    figures = {_NAMES.get(pair.name, pair.name): pair.value for pair in pairs(line)}
    row = {
        ("step" if name.lower().split()[-1] == "step" else "epoch" if name.lower().split()[-1] == "epoch" else name): value
        for name, value in figures.items()
    }
    if _VALIDATION.search(line):
        kept = {name: value for name, value in row.items() if name not in ("Loss", "loss", "duration") or "ppl" not in line.lower()}
        row = {
            name if name in ("step", "epoch", "lr") else f"valid {name.lower()}": value
            for name, value in kept.items()
            if name != "duration"
        }
    if len(row) > 1:
        state.add(row)


READERS = (LineFormat("JoeyNMT log", SIGN, parse, sure=0.93).reader(),)
