"""Put symptoms under their causes, order the findings, name the verdict and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, Diagnosis, Finding
from lossdoctor.core.fault import Fault

_SEVERITY = {"error": 0, "warning": 1, "advice": 2}
_REST = {"suspected": 0, "unknown": 1, "broke": 2, "absent": 3}
# What these families do wrong at a step shows from the step after; all other faults show in the same step.
_ACT_ON_WEIGHTS = {"OPT", "LOP", "TUN"}


def arrange(findings: Sequence[Finding], explains: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Set what explains what, and return the findings in the order of the report.

    Args:
        findings: one per fault.
        explains: by slug, the slugs that a fault accounts for where both are there.

    Returns:
        Present independent causes (by severity, then probability), then what they explain, then advice, then suspected,
        unknown, broken and absent ones.
    """
    ranked = sorted(findings, key=lambda finding: (_SEVERITY[finding.severity], -finding.probability, finding.code))
    by_slug = {finding.slug: finding for finding in ranked}
    for cause in (finding for finding in ranked if finding.status == "present" and finding.severity != "advice"):
        for slug in explains.get(cause.slug, ()):
            symptom = by_slug.get(slug)
            if symptom is not None and symptom.explained_by is None and _accounts(cause, symptom, by_slug):
                symptom.explained_by = cause.slug
    for finding in ranked:
        finding.explains = tuple(each.slug for each in ranked if _under(each, finding.slug, by_slug))
    return sorted(ranked, key=_place)


def _accounts(cause: Finding, symptom: Finding, by_slug: Mapping[str, Finding]) -> bool:
    """Check an edge: both are there, in one training or a later one, in the right order in time, and without a circle."""
    there = symptom.status in ("present", "suspected")
    return there and cause.training <= symptom.training and in_order(cause, symptom) and not _under(cause, symptom.slug, by_slug)


def in_order(cause: Finding, symptom: Finding) -> bool:
    """Tell whether a cause was seen early enough to account for a symptom.

    The cause begins at the first step of its evidence. The symptom sets in where its first evidence begins; evidence from
    step 0 on says nothing of an onset, so there the last step counts.
    """
    if not cause.evidence or not symptom.evidence:
        return False
    begins = min(item.steps[0] for item in cause.evidence)
    first, last = symptom.evidence[0].steps
    sets_in = first if first > 0 else last
    if cause.training < symptom.training:
        return True
    return begins < sets_in if cause.family in _ACT_ON_WEIGHTS else begins <= sets_in


def _under(finding: Finding, slug: str, by_slug: Mapping[str, Finding]) -> bool:
    """Tell whether a finding is explained by a slug, directly or through others."""
    above = finding.explained_by
    while above is not None:
        if above == slug:
            return True
        above = by_slug[above].explained_by
    return False


def _place(finding: Finding) -> tuple[int, int, float, str]:
    if finding.status != "present":
        return (3 + _REST[finding.status], 0, -finding.probability, finding.code)
    block = 2 if finding.severity == "advice" else 0 if finding.explained_by is None else 1
    return (block, _SEVERITY[finding.severity], -finding.probability, finding.code)


def verdict(findings: Sequence[Finding], failed: bool) -> str:
    """Return the slug of the first present error or warning that nothing explains, else `healthy` or `undetermined`.

    Args:
        findings: in the order of `arrange`.
        failed: whether the training did not learn, or nothing was trained.
    """
    for finding in findings:
        if finding.status == "present" and finding.severity != "advice" and finding.explained_by is None:
            return finding.slug
    return UNDETERMINED if failed else HEALTHY


def next_step(diagnosis: Diagnosis, chosen: Sequence[Fault], mode: str, script: str) -> str:
    """Return the command of the cheapest experiment that would settle what is open; empty where nothing is.

    A verdict needs no next step. Where there is none, the strongest suspicion that an experiment can settle decides.
    """
    if diagnosis.verdict not in (HEALTHY, UNDETERMINED):
        return ""
    settles = {fault.slug: fault.decides_with for fault in chosen}
    open_ones = [finding for finding in diagnosis.findings if finding.status == "suspected" and finding.explained_by is None]
    if mode == "read":
        return "lossdoctor run train.py" if open_ones or diagnosis.verdict == UNDETERMINED else ""
    if any(settles[finding.slug] for finding in open_ones) or diagnosis.verdict == UNDETERMINED:
        return f"lossdoctor run --workup full {script}"
    return ""
