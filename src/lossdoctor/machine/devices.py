"""Devices that one might run on instead, as their datasheets describe them; users add their own in pyproject.toml."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossdoctor.core.errors import UsageError

_TABLE = Path(__file__).with_name("devices.tsv")
# What PyTorch's dispatch and the driver take on the host for one operation on an accelerator: 5 to 25 us are reported for eager
# PyTorch; small scripts on a laptop's GPU took about 28 us an operation (field guide, 1.13 s for 400 steps). The low end, since
# the table says what is possible at most.
LAUNCH_SECONDS = 5e-6
_NUMBERS = ("memory_gb", "bandwidth_gb", "float32_tflops")
_OPTIONAL = ("tf32_tflops", "half_tflops", "price_per_hour")


@dataclass(frozen=True)
class Device:
    """Hold what a datasheet says of a device.

    Args:
        memory_gb: gigabytes (1e9 bytes).
        bandwidth_gb: gigabytes per second.
        float32_tflops: 1e12 floating-point operations per second, without matrix units.
        tf32_tflops: the same for float32 products in reduced precision, dense; None where it has none.
        half_tflops: the same in bfloat16 or float16, dense; None where it has none.
        source: where the figures stand.
        price_per_hour: only if the user gives it.

    Example:
        >>> Device("mine", 24, 1000, 80).source
        ''
    """

    name: str
    memory_gb: float
    bandwidth_gb: float
    float32_tflops: float
    tf32_tflops: float | None = None
    half_tflops: float | None = None
    source: str = ""
    price_per_hour: float | None = None


def devices(added: Mapping[str, Mapping[str, Any]] | None = None) -> list[Device]:
    """Return the table, with the user's devices added; one of the same name takes the place of ours.

    Args:
        added: by name, the fields of each, as in `[tool.lossdoctor.devices."My GPU"]`.

    Raises:
        UsageError: where a field is unknown, missing, or no positive number.

    Example:
        >>> [device.name for device in devices({"Mine": {"memory_gb": 8, "bandwidth_gb": 200, "float32_tflops": 5}})][-1]
        'Mine'
    """
    with _TABLE.open(encoding="utf-8", newline="") as stream:
        known = {row["name"]: _device(row["name"], {name: value for name, value in row.items() if value and name != "name"}) for row in csv.DictReader(stream, delimiter="\t")}  # fmt: skip  # noqa: E501
    for name, fields in (added or {}).items():
        if not isinstance(fields, Mapping):
            raise UsageError(f"devices.{name}: expected a table with {', '.join(_NUMBERS)}")
        known[name] = _device(name, fields)
    return list(known.values())


def _device(name: str, fields: Mapping[str, Any]) -> Device:
    unknown = set(fields) - {*_NUMBERS, *_OPTIONAL, "source"}
    if unknown:
        raise UsageError(f"devices.{name}: no field {sorted(unknown)[0]!r}; there are {', '.join((*_NUMBERS, *_OPTIONAL, 'source'))}")
    missing = [field for field in _NUMBERS if field not in fields]
    if missing:
        raise UsageError(f"devices.{name}: {missing[0]} is missing")
    numbers = {field: _positive(name, field, value) for field, value in fields.items() if field != "source"}
    return Device(name, source=str(fields.get("source", "pyproject.toml")), **numbers)


def _positive(name: str, field: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise UsageError(f"devices.{name}.{field}: expected a number above 0, got {value!r}")
    return number
