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


def memory(diagnosis: Diagnosis) -> list[str]:
    """Say what a step holds in memory, with a bar for each part, and which batch would fit.

    Example:
        >>> facts = {"rows": 8, "weights": 2**20, "gradients": 2**20, "optimizer_state": 2**21, "peak": 5 * 2**20, "saved": [["0", 2**20]]}
        >>> memory(Diagnosis(experiments=[{"name": "memory", "status": "done", "seconds": 1.0, "facts": facts}]))[0]
        'weights                        1 MiB ##'
    """
    found = next((each["facts"] for each in diagnosis.experiments if each["name"] == "memory" and each["status"] == "done"), None)
    if found is None:
        return []
    parts = {"weights": found["weights"], "optimiser state": found["optimizer_state"], "gradients": found["gradients"]}
    parts["activations and temporaries"] = max(0, found["peak"] - found["gradients"])
    whole = max(1, sum(parts.values()))
    width = max(len(name) for name in parts)
    bars = [f"{name:<{width}} {words.size(size):>8} {'#' * max(1, round(_BAR * size / whole))}" for name, size in parts.items()]
    return [*bars, *_most_saved(found), *_batches(found)]


_BAR = 20  # characters of all bars together


def _most_saved(found: dict[str, Any]) -> list[str]:
    saved = [words.clean(f"{name} {words.size(size)}") for name, size in found.get("saved", [])[:3]]
    fixes = sorted((found.get("fixes") or {}).items(), key=lambda item: -item[1])[:3]
    cheaper = [words.clean(f"{name} {words.size(size)}") for name, size in fixes]
    told = [f"most kept for backward by: {', '.join(saved)}"] if saved else []
    return [*told, f"what would save most (computed): {', '.join(cheaper)}"] if cheaper else told


def _batches(found: dict[str, Any]) -> list[str]:
    told = []
    if found.get("largest") is not None:
        told.append(f"largest batch that fits into the memory given: {found['largest']:,} rows (tried)")
    if found.get("largest_predicted"):
        told.append(f"largest batch that would fit here: about {found['largest_predicted']:,} rows (computed; now {found['rows']:,})")
    return told
