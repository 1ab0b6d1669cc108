"""Literal diagnoses, and random ones, that the tests of all reports share."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lossdoctor.core.diagnosis import HEALTHY, UNDETERMINED, BiggerMachine, Diagnosis, Evidence, Finding
from lossdoctor.core.run import Location

HOSTILE = [
    "[bold red]markup[/]",
    "<script>alert(1)</script>",
    "\x1b[31mescape\x1b[0m",
    "line\nbreak\r\ttab",
    "\u202eright to left",
    "{{ 7 * 7 }}",
    ":warning:",
    "café ☃ 損失",
    "lone \ud800 surrogate",
    "x" * 900,
]


def failing() -> Diagnosis:
    """Return what a run with forgotten zero_grad looks like: a cause, what it explains, advice, a suspicion, an unknown."""
    evidence = (
        Evidence("not_reset", (1, 599), 1.0, 0.0, "100% of 599 steps added to gradients of earlier steps"),
        Evidence("grad_norm", (0, 599), "1.2 to 340", "no growth", "the sum of old gradients grows"),
    )
    machine = BiggerMachine("no", "the loop is wrong on any machine")
    cause = Finding("LOP001", "zero-grad-missing", "Gradients pile up", "LOP", "present", "error", 0.987, evidence, bigger_machine=machine)
    cause.explains, cause.where = ("lr-too-high",), Location("train.py", 31)
    cause.fix = "Call optimizer.zero_grad() once per step, before backward."
    symptom = Finding("OPT001", "lr-too-high", "Learning rate too high", "OPT", "present", "error", 0.9, explained_by="zero-grad-missing")
    advice = Finding("REG003", "validation-missing", "No validation data", "REG", "present", "advice", 0.99, fix="Hold out a part.")
    suspicion = Finding("LAB001", "labels-meaningless", "Labels mean nothing", "LAB", "suspected", "error", 0.45)
    unknown = Finding("ARC007", "dead-units", "Dead units", "ARC", "unknown", missing="activations: watch the run")
    broke = Finding("ARC008", "saturated-units", "Saturated units", "ARC", "broke", missing="ZeroDivisionError: division by zero")
    return Diagnosis(
        verdict="zero-grad-missing",
        findings=[cause, symptom, advice, suspicion, unknown, broke, Finding("OPT002", "lr-too-low", "Rate too low", "OPT")],
        vitals={"steps": 600, "trainings": 1, "first_loss": 2.31, "expected_first_loss": 2.3026, "last_loss": 1.92}
        | {"best_validation_accuracy": 0.804, "wait_share": 0.09, "step_seconds": 0.0012, "overhead_share": 0.008},
        bigger_machine=machine,
        conditions=[{"name": "memorises a batch", "met": "unknown", "seen": "not tried"}],
        experiments=[{"name": "memorise", "status": "done", "seconds": 1.5, "facts": {"final_loss": 0.004}}],
        next_step="lossdoctor run --workup full train.py",
        notes=["the probe of activations was dropped: RuntimeError"],
        run={"script": "train.py"},
        trainings=[{"index": 0, "steps": 600, "present": ["zero-grad-missing", "lr-too-high"]}],
        curve=[(step, 2.3 * math.exp(-step / 90) + step / 600) for step in range(0, 600, 3)],
    )


# A busy machine draws slowly; what a test asserts does not depend on it.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(width=64))
texts = st.one_of(st.text(max_size=30), st.sampled_from(HOSTILE)).filter(lambda text: text not in ("nan", "inf", "-inf"))
helps = st.builds(BiggerMachine, st.sampled_from(["no", "yes", "speed-only", "unknown"]), texts)
spans = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
evidences = st.builds(Evidence, texts, spans, numbers | texts, numbers | texts, texts)
findings = st.builds(
    Finding,
    code=st.from_regex(r"\A[A-Z]{3}[0-9]{3}\Z"),
    slug=texts,
    title=texts,
    family=st.from_regex(r"\A[A-Z]{3}\Z"),
    status=st.sampled_from(["present", "suspected", "absent", "unknown", "broke"]),
    severity=st.sampled_from(["error", "warning", "advice"]),
    probability=st.floats(0, 1),
    evidence=st.lists(evidences, max_size=3).map(tuple),
    explains=st.lists(texts, max_size=2).map(tuple),
    explained_by=st.none() | texts,
    fix=texts,
    where=st.none() | st.builds(Location, texts, st.integers(1, 10**5)),
    bigger_machine=helps,
    missing=texts,
    training=st.integers(0, 5),
    confirmed=st.sampled_from([None, "confirmed", "refuted", "unclear"]),
    trial=st.none() | st.dictionaries(texts, numbers, max_size=2),
    gain=st.dictionaries(st.sampled_from(["time", "memory"]), st.floats(0, 1), max_size=2),
)
VITALS = ("first_loss", "last_loss", "expected_first_loss", "wait_share", "step_seconds", "overhead_share", "best_validation_accuracy")
conditions = st.fixed_dictionaries({"name": texts, "met": st.sampled_from([True, False, "unknown"]), "seen": texts})
facts = st.dictionaries(texts, numbers, max_size=3)
experiments = st.fixed_dictionaries({"name": texts, "status": texts, "seconds": st.floats(0, 100), "facts": facts})


@st.composite
def diagnoses(draw: st.DrawFn) -> Diagnosis:
    """Draw a diagnosis whose verdict is a present finding, healthy or undetermined, with texts from anywhere."""
    found = draw(st.lists(findings, max_size=6, unique_by=lambda finding: finding.slug))
    causes = [each.slug for each in found if each.status == "present" and each.severity != "advice" and each.explained_by is None]
    steps = draw(st.dictionaries(st.just("steps"), st.integers(0, 10**9)))
    return Diagnosis(
        verdict=causes[0] if causes else draw(st.sampled_from([HEALTHY, UNDETERMINED])),
        findings=found,
        vitals=draw(st.dictionaries(st.sampled_from(VITALS), numbers)) | steps,
        bigger_machine=draw(helps),
        conditions=draw(st.lists(conditions, max_size=2)),
        experiments=draw(st.lists(experiments, max_size=2)),
        next_step=draw(texts),
        notes=draw(st.lists(texts, max_size=2)),
        run=draw(st.dictionaries(texts, numbers | texts, max_size=2)),
        trainings=draw(st.lists(st.dictionaries(texts, numbers, max_size=2), max_size=2)),
        curve=draw(st.lists(st.tuples(st.integers(0, 10**6), st.floats(width=64)), max_size=40)),
    )
