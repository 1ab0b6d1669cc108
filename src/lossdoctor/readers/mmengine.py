"""MMEngine's `scalars.json` and MMCV 1's `*.log.json`: JSON lines; validation rows count in epochs or have a mode of their own."""

from __future__ import annotations

from typing import Any

from lossdoctor.readers.parts.records import lines_reader
from lossdoctor.readers.parts.table import Builder

# Figures of the machine in training rows.
_MACHINE = frozenset({"memory", "data_time", "time", "epoch", "iter", "step", "lr", "base_lr", "grad_norm", "momentum", "mode", "eta"})
_NAMES = {"time": "iter_time"}


def engine(record: dict[str, Any], builder: Builder) -> dict[str, Any]:
    """Take a row of MMEngine: one without a loss or an iteration is a validation, its step an epoch."""
    if "iter" in record or any("loss" in name for name in record):
        kept = {_NAMES.get(name, name): value for name, value in record.items() if name not in ("step", "memory", "iter")}
        return {**kept, "iter": record.get("step", record.get("iter"))}
    return {f"val/{name}": value for name, value in record.items() if name not in _MACHINE and value != -1.0}


def mmcv(record: dict[str, Any], builder: Builder) -> dict[str, Any] | None:
    """Take a row of MMCV 1: `iter` counts within the epoch, `mode` names the split."""
    if "mode" not in record:
        if isinstance(record.get("seed"), int) or "env_info" in record:
            builder.mark("start", "env_info")
        return None
    if record["mode"] == "train":
        return {_NAMES.get(name, name): value for name, value in record.items() if name != "memory"}
    return {f"val/{name}": value for name, value in record.items() if name not in _MACHINE and value != -1.0}


READERS = (
    lines_reader("MMEngine scalars", frozenset({"step", "time"}), engine, frozenset({"mode", "current_steps", "iteration", "_step"})),
    lines_reader("MMCV log", frozenset({"mode", "epoch", "iter"}), mmcv),
)
