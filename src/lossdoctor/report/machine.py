"""The words for what a run asks of its machine, and what another could give it."""

from __future__ import annotations

from typing import Any

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import words

_MET = {True: "met", False: "not met", "unknown": "not known"}
_BOUND = {"compute": "arithmetic", "memory": "moving data", "launch": "starting operations"}


def conditions(diagnosis: Diagnosis) -> list[str]:
    """Say each condition of a bigger machine, met or not, where the machine was measured.

    Example:
        >>> seen = [{"name": "memorises a batch", "met": True, "seen": "down to 0.01"}]
        >>> conditions(Diagnosis(vitals={"machine": {}}, conditions=seen))
        ['memorises a batch: met (down to 0.01)']
    """
    if "machine" not in diagnosis.vitals:
        return []
    return [words.clean(f"{each['name']}: {_MET.get(each['met'], 'not known')} ({each['seen']})") for each in diagnosis.conditions]


def step(diagnosis: Diagnosis) -> str:
    """Say what a step does here, and what limits it."""
    here: dict[str, Any] = diagnosis.vitals.get("machine") or {}
    if not here:
        return ""
    told = f"{words.seconds(here['compute_seconds'])} of compute and {words.seconds(here['other_seconds'])} of anything else"
    rate = f"{here['rate'] / 1e9:.3g} of {here['peak_rate'] / 1e9:.3g} GFLOP/s"
    return f"{told}; {here['operations']:,} operations, {rate}; limited by {_BOUND.get(here['bound'], here['bound'])}"


def devices(diagnosis: Diagnosis) -> list[str]:
    """Say what each device could give at most, those that give the same together, best first."""
    rows = (diagnosis.vitals.get("machine") or {}).get("devices", [])
    together: dict[str, list[str]] = {}
    for row in rows:
        together.setdefault(_gain(row), []).append(str(row["name"]) + _price(row))
    return [words.clean(f"{gain}: {', '.join(names)}") for gain, names in together.items()]


def _gain(row: dict[str, Any]) -> str:
    half = row.get("half_factor")
    also = f" ({half:.2g} in half precision)" if half and f"{half:.2g}" != f"{row['factor']:.2g}" else ""
    return f"at most {row['factor']:.2g} times as fast{also}, limited by {_BOUND.get(row['bound'], row['bound'])}"


def _price(row: dict[str, Any]) -> str:
    return f" ({row['price']:.2g} for these steps)" if "price" in row else ""


def measured(diagnosis: Diagnosis) -> str:
    """Say what the same step took on the accelerators of this machine, or that there are none."""
    here = diagnosis.vitals.get("machine")
    if not here:
        return ""
    if not here.get("measured"):
        return "no accelerator is here to measure; the figures are limits from datasheets, not measurements"
    return ", ".join(f"{words.clean(name)} {words.seconds(seconds)} a step" for name, seconds in here["measured"].items())
