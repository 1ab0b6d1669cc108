"""How numbers and answers are worded, the same in every report."""

from __future__ import annotations

import math

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, BiggerMachine, Diagnosis, Evidence, Finding
from lossdoctor.core.signals import SIGNALS

LONGEST = 300  # characters of one text in a report: a name may come from a hostile file
_HELPS = {
    "no": "A bigger machine would not help",
    "yes": "A bigger machine would help",
    "speed-only": "A bigger machine would only make it faster",
    "unknown": "Whether a bigger machine would help is not known",
}


def clean(text: object) -> str:
    """Make text harmless to show: one line, no control or direction characters, bounded length.

    Example:
        >>> clean("a\\x1b[31mb\\nc")
        'a\\\\x1b[31mb c'
    """
    one_line = " ".join(str(text).split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in one_line)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."


def number(value: float | str, unit: str = "") -> str:
    """Write a number with at most four digits, or a text as it is.

    Example:
        >>> number(2.302585), number(1200), number(float("nan")), number(0.0031, "s")
        ('2.303', '1,200', 'NaN', '3.1 ms')
    """
    if isinstance(value, str):
        return clean(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if unit == "s":
        return seconds(value)
    if unit == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"


def seconds(value: float) -> str:
    """Write a duration in the unit that suits it.

    Example:
        >>> seconds(0.00042), seconds(0.25), seconds(90), seconds(7300)
        ('0.42 ms', '250 ms', '90 s', '122 min')
    """
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 600 else f"{value / 60:,.0f} min"


def size(value: float) -> str:
    """Write a number of bytes in the largest binary unit that it fills.

    Example:
        >>> size(3 * 2**29), size(2**20), size(100)
        ('1.5 GiB', '1 MiB', '0.0977 KiB')
    """
    unit, name = next(((unit, name) for unit, name in ((2**30, "GiB"), (2**20, "MiB")) if value >= unit), (2**10, "KiB"))
    return f"{value / unit:.3g} {name}"


def percent(share: float) -> str:
    """Write a share as a percentage that never claims 0 or 100 without being it.

    Example:
        >>> percent(0.974), percent(0.9996), percent(0.0004), percent(0.0)
        ('97%', '>99%', '<1%', '0%')
    """
    if not math.isfinite(share):
        return "NaN"
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def likelihood(probability: float) -> str:
    """Say a probability in words and as a figure.

    Example:
        >>> likelihood(0.97)
        'almost certain, 97%'
        >>> likelihood(1.0)  # no measurement is
        'almost certain, >99%'
    """
    bounds = ((0.95, "almost certain"), (0.9, "very likely"), (0.8, "likely"), (0.5, "possible"))
    word = next((word for bound, word in bounds if probability >= bound), "not excluded")
    return f"{word}, {percent(min(probability, 0.999))}"


def name(finding: Finding) -> str:
    """Name a finding as reports do: code, slug, title."""
    return clean(f"{finding.code} {finding.slug}: {finding.title}")


def evidence(item: Evidence) -> str:
    """Say in one line what was seen, against what, when.

    Example:
        >>> evidence(Evidence("not_reset", (1, 599), 1.0, 0.0, "no step found its gradients reset"))
        'not_reset 1 (steps 1-599), expected 0: no step found its gradients reset'
    """
    unit = SIGNALS[item.signal].unit if item.signal in SIGNALS else ""
    first, last = item.steps
    when = f"step {first:,}" if first == last else f"steps {first:,}-{last:,}"
    seen = f"{clean(item.signal)} {number(item.seen, unit)} ({when}), expected {number(item.expected, unit)}"
    return f"{seen}: {clean(item.note)}" if item.note else seen


def machine(answer: BiggerMachine) -> str:
    """Say whether a bigger machine would help, and why.

    Example:
        >>> machine(BiggerMachine("no", "the loop is wrong on any machine"))
        'A bigger machine would not help. The loop is wrong on any machine.'
    """
    why = clean(answer.why).rstrip(".")
    return f"{_HELPS.get(answer.helps, _HELPS['unknown'])}." + (f" {why[0].upper()}{why[1:]}." if why else "")


def verdict_title(diagnosis: Diagnosis) -> str:
    """Return the title of the verdict, also where no fault is the verdict."""
    if diagnosis.verdict == HEALTHY:
        return "No known fault was found"
    if diagnosis.verdict == UNDETERMINED:
        return "The cause is not determined"
    finding = diagnosis.finding(diagnosis.verdict)
    return finding.title if finding else diagnosis.verdict
