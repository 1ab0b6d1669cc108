"""What the experiments of a check measured, a sentence each, whether or not it is a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import words

Facts = Mapping[str, Any]


def checks(diagnosis: Diagnosis) -> list[str]:
    """Return a line for each experiment of a check; none where there was no check.

    Example:
        >>> facts = {"parts": 4, "divided": 1.0, "undivided": 4.0, "cosine": 1.0}
        >>> done = [{"name": "look", "status": "done", "facts": {}}, {"name": "accumulation", "status": "done", "facts": facts}]
        >>> checks(Diagnosis(experiments=done))
        ['accumulation: 4 parts give the gradient of the whole batch, 4 times as large where their losses are not divided']
    """
    names = {each["name"] for each in diagnosis.experiments}
    if "look" not in names:
        return []
    return [line for each in diagnosis.experiments if (line := _line(each))]


def _line(experiment: Facts) -> str:
    name, facts = str(experiment["name"]), experiment.get("facts") or {}
    if name not in _TOLD:
        return ""
    if experiment.get("status") != "done":
        return words.clean(f"{name}: unknown, {facts.get('reason', 'it was not done')}")
    try:
        told = _TOLD[name](facts)
    except (KeyError, TypeError, ValueError, IndexError):  # written by another version
        return ""
    return words.clean(f"{name}: {told}") if told else ""


def _look(facts: Facts) -> str:
    first = facts["inputs"][0]
    shape = " x ".join(str(size) for size in first["shape"])
    told = f"{shape} {first['dtype']} from {first['min']:.3g} to {first['max']:.3g}, mean {first['mean']:.3g}, spread {first['std']:.3g}"
    if "rows" not in facts:
        return told
    rest = [f"{1 - facts['distinct']:.0%} of {facts['rows']} rows are double"] if facts["distinct"] < 1 else []
    rest += [f"{facts['conflicts']:.0%} of the rows have an equal with another target"] if facts.get("conflicts") else []
    rest += [f"{facts['constant']} features are constant"] if facts.get("constant") else []
    if "neighbour" in facts:
        rest.append(f"{facts['neighbour']:.0%} of the nearest rows have the same label, chance is {facts['chance']:.0%}")
    return ", ".join([told, *rest])


def _memorise(facts: Facts) -> str:
    if facts["own"] < 0.01:
        return f"{facts['rows']} examples in {facts['steps']} steps"
    return f"{facts['rows']} examples were not memorised, {facts['own']:.2g} of guessing was reached"


def _flow(facts: Facts) -> str:
    told = [f"gradients change by a factor of {facts['slope']:.2g} from a layer to the one below"] if facts.get("slope") else []
    told += [f"{len(facts['without'])} parameters get no gradient"] if facts["without"] else []
    told += [f"{len(facts['zero'])} get one of zero"] if facts["zero"] else []
    return ", ".join(told)


def _accumulation(facts: Facts) -> str:
    factor = facts["undivided"]
    if facts["cosine"] < 0.999:
        cosine = f"cosine {facts['cosine']:.3f}"
        return f"{facts['parts']} parts give another direction than the whole batch ({cosine}): batch norm, or no mean over rows"
    if abs(factor - 1) < 0.01:
        return f"{facts['parts']} parts give the gradient of the whole batch as they are: the loss is a sum over rows"
    return f"{facts['parts']} parts give the gradient of the whole batch, {factor:.3g} times as large where their losses are not divided"


def _precision(facts: Facts) -> str:
    told = []
    for name in ("bfloat16", "float16", "float16_scaled"):
        each = facts[name]
        if "reason" not in each:
            told.append(f"{name.replace('_', ' ')} {'overflows' if not each['finite'] else words.percent(each['error']) + ' off'}")
    lost = facts["lost_updates"]["bfloat16"]
    return ", ".join(told) + (f"; bfloat16 weights would lose {lost:.0%} of the updates of plain descent" if lost > 0.5 else "")


def _memory(facts: Facts) -> str:
    parts = [(name.replace("_", " "), facts.get(name)) for name in ("weights", "gradients", "optimizer_state", "peak")]
    told = ", ".join(f"{name} {size / 2**20:,.1f} MiB" for name, size in parts if size is not None)
    most = facts.get("largest_predicted")
    return f"{told}; about {most:,} rows fit what is free" if most is not None else told


def _rate_range(facts: Facts) -> str:
    if facts["low"] is None:
        return f"no rate lets the loss fall; the run's own is {facts['own']:.2g}"
    place = "inside" if facts["low"] <= facts["own"] <= facts["high"] else "outside"
    return f"the loss falls from rate {facts['low']:.2g} to {facts['high']:.2g}; the run's own {facts['own']:.2g} lies {place}"


def _stress(facts: Facts) -> str:
    broken = [f"{what} {facts[what]['factor']:.0f} times as large" for what in ("outputs", "inputs") if facts.get(what)]
    told = [f"the loss is no number with {' and '.join(broken)}"] if broken else ["the loss stays finite on extreme values"]
    told += [f"a batch of one fails ({facts['single']})"] if isinstance(facts["single"], str) and "per channel" in facts["single"] else []
    return ", ".join([*told, *(["an empty mask gives no number"] if facts.get("empty_mask") in ("nan", "inf") else [])])


def _baseline(facts: Facts) -> str:
    if "classical" not in facts:
        return ""
    return f"{facts['classical_name']} reaches {facts['classical']:.2f} on held-out rows, the constant answer {facts['prior']:.2f}"


_TOLD: dict[str, Callable[[Facts], str]] = {
    "look": _look,
    "memorise": _memorise,
    "stress": _stress,
    "baseline": _baseline,
    "flow": _flow,
    "accumulation": _accumulation,
    "precision": _precision,
    "memory": _memory,
    "rate_range": _rate_range,
}
