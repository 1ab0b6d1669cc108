"""Would a bigger machine help? Every combination of the conditions that occurs, and the figures of the devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lossdoctor.core.diagnosis import BiggerMachine, Diagnosis, Finding
from lossdoctor.core.run import Experiment, Row, Run, Series, Training
from lossdoctor.diagnose.machine import answer
from lossdoctor.diagnose.upgrade import decide

STEP = 0.1  # s
KINDS = [[20, 5e8, 4e6], [40, 0, 1e6]]


def situation(
    *,
    memorises: float = 0.005,
    passes: tuple[float, ...] = (2.0, 1.0),
    wait: float = 0.02,
    fixed: float | None = 0.1,
    ended: str | None = None,
) -> Training:
    """Build a training of 60 steps with so much of each."""
    steps = 60
    signals = {
        "loss": Series.of(np.linspace(2.0, 1.0, steps)),
        "wall": Series.of(np.arange(steps) * STEP),
        "loader_seconds": Series.of([wait * STEP] * steps),
        "gap_seconds": Series.of([wait * STEP] * steps),
    }
    facts: dict[str, Any] = {"seconds": STEP * (1 - wait), "flops": 1e10, "bytes": 1.2e8, "operations": 60, "kinds": KINDS, "device": "cpu"}
    facts |= {"peaks": {"flops": 2e11, "bandwidth": 2e10, "launch_seconds": 3e-6}, "fixed_share": fixed}
    experiments = {"memorise": Experiment("memorise", "done", 1.0, {"own": memorises, "fresh_median": memorises})}
    experiments["throughput"] = Experiment("throughput", "done", 1.0, facts)
    rows = {"validation": [Row(20 * i, {"loss": loss}) for i, loss in enumerate(passes)]}
    ending = {"ended": {"exception": ended, "how": "exception" if ended else "returned"}}
    return Training(signals=signals, rows=rows, experiments=experiments, run_facts=ending)


def finding(slug: str, severity: str, helps: str) -> Finding:
    return Finding("XXX001", slug, slug, "XXX", "present", severity, 0.95, bigger_machine=BiggerMachine(helps, ""))  # type: ignore[arg-type]


STILL_FALLING = finding("too-few-epochs", "advice", "speed-only")
LOOP_IS_WRONG = finding("zero-grad-missing", "error", "no")
DOES_NOT_FIT = finding("does-not-fit", "error", "yes")
HAS_A_TIP = finding("loss-noisy", "advice", "no")

SITUATIONS = [
    ("all conditions are met and both curves still fall", situation(), [STILL_FALLING], "yes"),
    ("busy, learnt, level at the end", situation(), [], "speed-only"),
    ("only advice besides", situation(), [HAS_A_TIP], "speed-only"),
    ("a loop that is wrong, on a busy machine", situation(), [LOOP_IS_WRONG, STILL_FALLING], "no"),
    ("cannot memorise a batch", situation(memorises=0.6), [STILL_FALLING], "no"),
    ("validation never improves", situation(passes=(1.0, 1.4, 1.9)), [STILL_FALLING], "no"),
    ("waits for data", situation(wait=0.8), [STILL_FALLING], "no"),
    ("small steps: the device is hardly busy", situation(fixed=0.9), [STILL_FALLING], "no"),
    ("waits, and small steps", situation(wait=0.6, fixed=0.9), [], "no"),
    ("memory ran out before any validation", situation(passes=(), ended="OutOfMemoryError"), [], "yes"),
    ("memory ran out, told by its fault", situation(passes=(), ended="OutOfMemoryError"), [DOES_NOT_FIT], "yes"),
    ("memory ran out, but the model memorises nothing", situation(memorises=0.6, ended="OutOfMemoryError"), [], "no"),
    ("no validation at all, busy", situation(passes=()), [], "speed-only"),
]


def diagnosed(findings: list[Finding]) -> Diagnosis:
    cause = next((each.slug for each in findings if each.severity != "advice"), "healthy")
    return Diagnosis(verdict=cause, findings=findings)


@pytest.mark.parametrize(("training", "findings", "helps"), [each[1:] for each in SITUATIONS], ids=[each[0] for each in SITUATIONS])
def test_the_answer_in_a_situation(training: Training, findings: list[Finding], helps: str) -> None:
    diagnosis = diagnosed(findings)
    diagnosis.bigger_machine, diagnosis.conditions = answer(diagnosis, training)
    decided = decide(Run(trainings=[training]), diagnosis, {})
    assert decided.bigger_machine.helps == helps
    assert decided.bigger_machine.why
    assert all(condition["seen"] for condition in decided.conditions)


def test_without_a_measurement_the_old_answer_stands() -> None:
    assert answer(Diagnosis(), Training())[0].helps == "speed-only"


def test_where_the_best_device_gives_nothing_the_answer_is_no() -> None:
    training = situation()
    diagnosis = Diagnosis(bigger_machine=BiggerMachine("speed-only", "busy"))
    slow = training.experiments["throughput"].facts | {"seconds": 1e-4}
    training.experiments["throughput"] = Experiment("throughput", "done", 1.0, slow)
    assert decide(Run(trainings=[training]), diagnosis, {}).bigger_machine.helps == "no"


def test_factors_keep_amdahls_law_and_prices_come_from_the_user() -> None:
    training = situation(wait=0.2)
    mine = {"Mine": {"memory_gb": 8, "bandwidth_gb": 1e6, "float32_tflops": 1e6, "price_per_hour": 3.6}}
    figures = decide(Run(trainings=[training]), Diagnosis(), mine).vitals["machine"]
    rows = {row["name"]: row for row in figures["devices"]}
    assert rows["Mine"]["factor"] == pytest.approx(1 / 0.2, rel=0.05)
    assert all(row["factor"] <= 5.0 for row in rows.values())
    assert rows["Mine"]["price"] == pytest.approx(60 * rows["Mine"]["step_seconds"] * 1e-3, rel=0.1)
    assert "price" not in rows["NVIDIA L4"]
